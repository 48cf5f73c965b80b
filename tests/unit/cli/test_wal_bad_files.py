"""``stelae wal verify`` and ``dump`` on a log with a bad file: what they say, by engine, and what they leave alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stelae.cli.main import build_app
from stelae.machine.files import RealFiles
from stelae.spi.errors import Foreign, FutureVersion, Locked, StelaeError
from tests.unit.convert.places import ENGINES, formatted, place
from tests.unit.wal_files import Change, a_directory, cut_to, flipped, foreign, of_slot_version, zeroed

DATA = {"segmented": "busy/g3-000000000001.seg", "shared": "000000000002.seg", "lmdb": "env/data.mdb"}
"""A file with entries of the log ``busy``. With ``lmdb`` there is no other, for any log."""

REFUSED: dict[str, tuple[Change, type[StelaeError], str]] = {
    "emptied": (cut_to(0), Foreign, "not a log of ours"),
    "of something else": (foreign, Foreign, "not a log of ours"),
    "a directory in its place": (a_directory, Foreign, "found a directory in place of a file; move it away"),
    "zeroed": (zeroed(), Foreign, "neither of its two slots is valid"),
    "of a newer release": (of_slot_version(99), FutureVersion, "format 99 is newer than 2"),
    "from before the first release": (of_slot_version(1), Foreign, "no release wrote format 1"),
}
"""What is done to the marker, which has the name of the engine, and what every command then says."""

DAMAGED: dict[str, Change] = {
    "emptied": cut_to(0),
    "cut": cut_to(2000),
    "zeroed": zeroed(),
    "of something else": foreign,
    "one bit of a body": lambda data: flipped(data.index(b"<1.7><1.7>") + 3)(data),
}


def invoke(*words: str) -> tuple[int, Any, str]:
    """Run a command with ``--json``; return its exit code, its document, and what it remarked."""
    done = CliRunner().invoke(build_app("wal"), ["wal", *words, "--json"])
    if isinstance(done.exception, StelaeError):
        raise done.exception
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout), done.stderr


def put(path: Path, data: bytes | None) -> None:
    if data is not None:
        path.write_bytes(data)
        return
    path.unlink()
    path.mkdir()


def tree(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture(params=sorted(ENGINES))
def wals(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The log of a node with three logs: ``busy`` with 30 entries, two without any."""
    formatted(place(RealFiles(), str(tmp_path / "node")), ENGINES[request.param])
    (tmp_path / "engine").write_text(request.param)
    return tmp_path / "node" / "wals"


def engine_of(wals: Path) -> str:
    return (wals.parent.parent / "engine").read_text()


@pytest.mark.parametrize("what", REFUSED)
def test_a_marker_that_is_not_what_it_was_is_named_and_nothing_is_changed(wals: Path, what: str) -> None:
    change, expected, said = REFUSED[what]
    marker = wals / engine_of(wals)
    put(marker, change(marker.read_bytes()))
    before = tree(wals)
    for command in ("verify", "dump", "stats"):
        with pytest.raises(expected, match=said) as caught:
            invoke(command, str(wals.parent))
        assert getattr(caught.value, "path", "") == str(marker)
    assert tree(wals) == before


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_file_is_told_with_its_path_and_the_last_good_entry(wals: Path, what: str) -> None:
    path = wals / DATA[engine_of(wals)]
    put(path, DAMAGED[what](path.read_bytes()))
    for _ in range(2):
        code, found, remark = invoke("verify", str(wals.parent))
        bad = {log["log"]: log["problem"] for log in found["logs"] if log["problem"] is not None}
        assert code == 1 and not found["ok"] and "busy/3" in bad
        assert f"{len(bad)} of 3 logs are damaged" in remark
        assert bad["busy/3"]["damage"] and bad["busy/3"]["path"] == str(path)
        code, dumped, remark = invoke("dump", str(wals.parent), "--tablet", "busy")
        (problem,) = dumped["problems"]
        assert (
            code == 1 and str(path) in problem and problem.startswith("log busy/3 is damaged: ") and problem in remark
        )
        (counted,) = [log["entries"] for log in found["logs"] if log["log"] == "busy/3"]
        assert len(dumped["entries"]) == counted, "all that stands before the fault"
        if counted:
            assert dumped["entries"][-1]["op_id"] == bad["busy/3"]["last_good"]
        code, figures, remark = invoke("stats", str(wals.parent))
        assert code == 1 and len(figures["logs"]) == 3 and f"{len(bad)} of 3 logs are damaged" in remark


def test_a_log_whose_engine_runs_elsewhere_is_locked(wals: Path) -> None:
    where = place(RealFiles(), str(wals.parent))
    picked = ENGINES[engine_of(wals)]
    engine = picked.engine.open(str(wals), picked.config, where.services)
    with pytest.raises(Locked) as caught:
        invoke("verify", str(wals.parent))
    assert caught.value.path == str(wals / "lock")
    engine.close()
    assert invoke("verify", str(wals.parent))[0] == 0
