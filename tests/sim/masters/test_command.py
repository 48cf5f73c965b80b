"""``stelae sim masters``: the JSON document, the exit codes, and the last line, which reproduces a failure."""

from __future__ import annotations

import json

import pytest

from stelae.cli import main as command_line
from tests.sim.masters.mutants import MUTANTS
from tests.sim.planting import planted


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command in this process, because planted bugs exist only here."""
    monkeypatch.setattr("sys.argv", ["stelae", "sim", "masters", "--jobs", "1", *arguments])
    with pytest.raises(SystemExit) as left:
        command_line.main()
    return int(left.value.code or 0)


def test_a_range_of_seeds_prints_one_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--seeds", "1..2", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["seeds"] == 2
    assert document["violations"] == []
    assert document["coverage"]["change.CreateTable.done"] > 0


def test_a_failing_seed_ends_with_the_command_that_reproduces_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with planted(MUTANTS[0]):
        assert run(monkeypatch, "--seed", "1", "--json") == 1
    printed = capsys.readouterr()
    [violation] = json.loads(printed.out)["violations"]
    assert violation["invariant"] == MUTANTS[0].invariant
    assert printed.err.splitlines()[-1] == "stelae sim masters --seed 1" == violation["reproduce"]


def test_the_command_that_reproduces_a_shrunk_run_names_its_faults_and_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with planted(MUTANTS[0]):
        assert run(monkeypatch, "--seed", "2", "--faults", "none", "--changes-max", "6") == 1
    assert capsys.readouterr().err.splitlines()[-1] == "stelae sim masters --seed 2 --faults none --changes-max 6"
