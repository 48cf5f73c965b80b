"""``stelae sim run``, ``shrink`` and ``show``: the JSON document, the exit codes, and the commands after a failure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.cli import main as command_line
from tests.sim.member_mutants import MEMBER_MUTANTS
from tests.sim.mutants import MUTANTS
from tests.sim.planting import planted


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run all seeds in this process, because planted bugs exist only here."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    yield


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["stelae", "sim", *arguments])
    with pytest.raises(SystemExit) as left:
        command_line.main()
    return int(left.value.code or 0)


@pytest.mark.usefixtures("one_process")
def test_a_range_of_seeds_prints_one_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "run", "--seeds", "1..2", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["seeds"] == 2
    assert document["events"] >= 10_000
    assert document["violations"] == []
    assert document["coverage"]["ready.append"] > 0


@pytest.mark.usefixtures("one_process")
def test_a_failing_seed_ends_with_the_command_that_reproduces_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with planted(MUTANTS[0]):
        assert run(monkeypatch, "run", "--seed", "1", "--json") == 1
    printed = capsys.readouterr()
    [violation] = json.loads(printed.out)["violations"]
    assert violation["invariant"] == MUTANTS[0].invariant
    found, failed, show, shrink, reproduce = printed.err.splitlines()
    assert found.startswith(f"seed 1: {MUTANTS[0].invariant} does not hold at ")
    assert failed == "failed seeds: 1"
    assert reproduce == "stelae sim run --seed 1" == violation["reproduce"]
    assert show.endswith("stelae sim show 1") and violation["show"] == "stelae sim show 1"
    assert shrink.endswith("stelae sim shrink 1")


def test_a_failing_seed_is_shrunk_with_a_line_for_each_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with planted(MUTANTS[0]):
        assert (
            run(monkeypatch, "shrink", "1", "--faults", "none", "--operations-max", "8", "--runs-max", "1", "--json")
            == 0
        )
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["violation"]["invariant"] == MUTANTS[0].invariant
    assert document["faults"] == []
    assert document["operations_max"] == 4
    assert document["changes_max"] is None
    assert document["reproduce"] == "stelae sim run --seed 1 --faults none --operations-max 4"
    assert printed.err.splitlines()[-1] == "run 1: 0 faults, 4 operations per client: same violation"


OF_TWO_CHANGES = "members: two voters change at once"


def test_the_member_changes_of_a_failing_seed_are_shrunk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mutant = next(mutant for mutant in MEMBER_MUTANTS if mutant.name == OF_TWO_CHANGES)
    short = ("--profile", "membership", "--faults", "none", "--operations-max", "1", "--changes-max", "16")
    with planted(mutant):
        assert run(monkeypatch, "shrink", "1", *short, "--json") == 0
        printed = capsys.readouterr()
        assert run(monkeypatch, "run", "--seed", "1", *short[:-1], "8", "--json") == 1
    document = json.loads(printed.out)
    assert document["violation"]["invariant"] == mutant.invariant
    assert document["changes_max"] == 8
    options = "--profile membership --faults none --operations-max 1 --changes-max 8"
    assert document["reproduce"] == f"stelae sim run --seed 1 {options}"
    assert document["show"] == f"stelae sim show 1 {options}"
    same, other = printed.err.splitlines()[-2:]
    assert same == "run 1: 0 faults, 1 operations per client, 8 changes of members: same violation"
    assert other == "run 2: 0 faults, 1 operations per client, 4 changes of members: no such violation"
    printed = capsys.readouterr()
    [violation] = json.loads(printed.out)["violations"]
    assert violation["reproduce"] == f"stelae sim run --seed 1 {options}" == printed.err.splitlines()[-1]
    assert printed.err.splitlines()[-2].endswith(f"stelae sim shrink 1 {options}")
    assert violation["show"] == f"stelae sim show 1 {options}"


def test_a_seed_without_a_violation_is_refused_with_the_way_to_find_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "shrink", "8", "--faults", "none", "--operations-max", "1") == 2
    printed = capsys.readouterr()
    assert "`stelae sim run --seeds 1..1000`" in printed.err
    assert printed.out == ""
    of_members = ("--profile", "membership", "--faults", "none", "--operations-max", "1")
    assert run(monkeypatch, "shrink", "1", *of_members) == 2
    assert "`stelae sim run --seeds 1..1000 --profile membership`" in capsys.readouterr().err


@pytest.mark.usefixtures("one_process")
def test_a_plan_can_be_shown_and_cut_down(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "plan", "--seed", "4", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["faults"]
    assert run(monkeypatch, "run", "--seed", "4", "--faults", "none", "--json") == 0
    coverage = json.loads(capsys.readouterr().out)["coverage"]
    assert not any(name.startswith("fault.") for name in coverage)


def test_a_run_is_shown_as_text_and_as_one_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["show", "8", "--faults", "none", "--operations-max", "1", "--only", "role,violation"]
    assert run(monkeypatch, *short) == 0
    text = capsys.readouterr().out
    assert "LEADER term 1, serves" in text
    assert "left out" in text.splitlines()[-1]
    assert run(monkeypatch, *short, "--from", "0.5", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert {record["kind"] for record in document["records"]} == {"role"}
    assert all(record["at_us"] >= 500_000 for record in document["records"])
    assert document["left_out"]["heartbeat"] > 0


def test_a_run_is_shown_as_a_page_in_a_file_or_on_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    short = ["show", "8", "--faults", "none", "--operations-max", "1"]
    path = tmp_path / "run.html"
    assert run(monkeypatch, *short, "--html", str(path)) == 0
    printed = capsys.readouterr()
    assert printed.out == "" and str(path) in printed.err
    assert run(monkeypatch, *short, "--html", "-") == 0
    page = capsys.readouterr().out
    assert page == path.read_text(encoding="utf-8")
    assert "<code>stelae sim run --seed 8 --faults none --operations-max 1</code>" in page


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (".", "it is a directory; pass the name of a file"),
        ("missing/run.html", "there is no directory"),
        ("n" * 300, "File name too long; pass another file"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, told: str
) -> None:
    path = f"{tmp_path}/{name}"
    assert run(monkeypatch, "show", "8", "--faults", "none", "--operations-max", "1", "--html", path) == 2
    printed = capsys.readouterr()
    assert f"--html cannot write {tmp_path}" in printed.err and told in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run"], "--seed N or --seeds A..B"),
        (["run", "--seed", "1", "--seeds", "1..2"], "--seed N or --seeds A..B"),
        (["run", "--seeds", "5..1"], "takes a range such as 1..50"),
        (["run", "--seeds", "1-5"], "takes a range such as 1..50"),
        (["run", "--seeds", "1..99999999"], "too many"),
        (["run", "--seed", "1", "--faults", "a,b"], "takes numbers from"),
        (["show", "1", "--html", "-", "--json"], "exclude each other"),
        (["show", "1", "--only", "role,lunch"], "does not know lunch; pass all, or some of violation, fault, role"),
    ],
)
def test_wrong_arguments_are_refused_with_the_right_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert run(monkeypatch, *arguments) == 2
    printed = capsys.readouterr()
    assert told in printed.err
    if "--json" in arguments:
        assert told in json.loads(printed.out)["error"]
    else:
        assert printed.out == ""
