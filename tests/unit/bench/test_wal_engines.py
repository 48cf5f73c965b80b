"""``stelae bench wal`` measures whichever engines are installed, and says which those are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import typer

from stelae.config.registry import Registry, UnknownEngine
from stelae.spi.errors import CallerError
from stelae.spi.extras import MissingExtra
from stelae_bench import wal_run
from stelae_bench.wal_cases import CEILING, ENGINES, REFERENCES, WalBenchSettings
from stelae_bench.wal_command import _names, _write
from stelae_bench.wal_open import OpenLogs
from stelae_bench.wal_plot import draw
from stelae_bench.wal_report import HUNDRED, MANY, ONE
from stelae_bench.wal_run import run
from stelae_bench.wal_samples import WalSample
from stelae_bench.wal_table import lines
from tests.unit.bench.test_wal_report import report_of


def settings(*engines: str) -> WalBenchSettings:
    return WalBenchSettings(
        seed=1, rounds=5, seconds=0.005, quick=True, restart_bytes=1, directory=None, engines=engines
    )


def test_names_are_separated_by_commas_in_the_order_in_which_they_are_shown() -> None:
    assert _names("timeline, shared") == ("timeline", "shared")
    assert _names(",".join(ENGINES)) == ENGINES


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a name is empty"),
        ("shared,", "a name is empty"),
        ("shared,lmdb,shared", "'shared' occurs twice"),
        *((other, f"'{other}' is always measured, for comparison") for other in (CEILING, *REFERENCES)),
    ],
)
def test_names_that_cannot_be_meant_are_refused(text: str, words: str) -> None:
    with pytest.raises(typer.BadParameter, match=words):
        _names(text)


def test_an_engine_that_is_not_installed_is_refused_with_those_that_are() -> None:
    with pytest.raises(UnknownEngine) as caught:
        run(settings("shared", "timeline"), lambda _: None)
    assert "'timeline'" in str(caught.value)
    assert {*caught.value.known} >= {*ENGINES}


def test_with_no_engine_left_the_missing_package_is_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> type:
        raise MissingExtra("lmdb", "lmdb")

    monkeypatch.setattr(Registry, "engine", missing)
    with pytest.raises(MissingExtra):
        run(settings("lmdb"), lambda _: None)


def test_what_the_rounds_found_stands_when_a_large_log_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A regression: half an hour of rounds was lost with the error."""

    async def broken(*_: object) -> None:
        raise CallerError("planted")

    monkeypatch.setattr(WalBenchSettings, "cases", property(lambda _: [ONE]))
    monkeypatch.setattr(wal_run, "measure_large_log", broken)
    report = run(replace(settings("segmented"), quick=False), lambda _: None)
    assert len(report.rounds["segmented", ONE]) == 5
    assert report.problems == ["reads, restarts and collection were not measured: planted"] and not report.ok
    assert report.document()["logs"] == []


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_disk_that_is_full_while_warming_up_is_a_problem_of_the_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    """No groups were formed then, which the bare loops could repeat. The seed decides who would come first."""

    async def full(*_: object, **__: object) -> WalSample:
        problem = "an append failed: no space is left"
        return WalSample(seconds=0, cpu_s=0, latencies_us=[], groups=[], commits_us=[], problems=[problem])

    monkeypatch.setattr(WalBenchSettings, "cases", property(lambda _: [ONE]))
    monkeypatch.setattr(OpenLogs, "measure", full)
    report = run(replace(settings("segmented"), seed=seed), lambda _: None)
    assert report.problems and "no space is left" in report.problems[0]
    assert lines(report.document())[-1] == "NOT OK"
    _write(report.document(), tmp_path / "wal.svg", None)
    assert not (tmp_path / "wal.svg").exists()


def test_engines_of_others_stand_before_the_bare_loops_in_rows_tables_and_picture(tmp_path: Path) -> None:
    names = ("timeline", "segmented", "ring", *REFERENCES)
    report = report_of({(name, case): [1000.0] for name in reversed(names) for case in (HUNDRED, MANY, ONE)})
    report.engines = names[:3]
    document = report.document()
    assert tuple(row["engine"] for row in document["rows"][: len(names)]) == names
    assert [ratio["engine"] for ratio in document["ratios"]] == [*names[:3]]
    assert lines(document)[3].split()[2:] == [*names]
    draw(document, tmp_path / "wal.svg")
    assert b"timeline" in (tmp_path / "wal.svg").read_bytes()
