"""``stelae recover apply`` before it asks a node: plans without tablets, and the confirmation."""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path

import pytest

from stelae.recover.plan import NotPlanned, PlannedNode, RecoveryPlan, TabletPlan, encode_plan
from stelae.spi.ids import NodeId, OpId, TabletId
from tests.unit.cli.test_commands import document, run

LOST = NotPlanned(tablet_id=TabletId("ab" * 16), table="t", why="no replica answers", has_majority=False)
TABLET = TabletPlan(
    tablet_id=TabletId("cd" * 16),
    table="t",
    voters=3,
    replicas_wanted=3,
    term=1 << 40,
    survivor=PlannedNode(node_id=NodeId("1" * 32), address="127.0.0.1:1"),
    last=OpId(1, 1),
    config_id=OpId(1, 1),
    others=(),
    lost=(),
    ranking=(),
    loss=(),
)


def saved(tmp_path: Path, *tablets: TabletPlan, unrecoverable: tuple[NotPlanned, ...] = ()) -> str:
    file = tmp_path / "plan.json"
    file.write_bytes(encode_plan(RecoveryPlan(made_us=1, tablets=tablets, unrecoverable=unrecoverable)))
    return str(file)


def test_a_plan_without_tablets_is_one_document_too(tmp_path: Path) -> None:
    """With --json the command printed nothing on standard output."""
    done = run("recover", "apply", saved(tmp_path), "--connect", "127.0.0.1:1", "--json")
    assert (done.returncode, document(done)) == (0, {"tablets": [], "incomplete": []})
    assert "nothing to do" in done.stderr


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_plan_of_tablets_that_cannot_be_recovered_is_no_success(tmp_path: Path, words: tuple[str, ...]) -> None:
    """It said that there is nothing to do, with exit code 0, although the tablet serves no requests."""
    done = run("recover", "apply", saved(tmp_path, unrecoverable=(LOST,)), "--connect", "127.0.0.1:1", *words)
    assert done.returncode == 1
    assert "1 tablet without a survivor cannot be recovered; start one of its servers again" in done.stderr
    assert document(done) == {"tablets": [], "incomplete": []} if words else "CANNOT BE RECOVERED" in done.stdout


@pytest.mark.parametrize("answer", ["n\n", ""], ids=["no", "end of input"])
def test_a_recovery_that_is_not_confirmed_asks_on_standard_error_and_says_that_nothing_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """The question was on standard output, before the document of --json or in its place."""
    terminal = StringIO(answer)
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", terminal)
    done = run("recover", "apply", saved(tmp_path, TABLET), "--connect", "127.0.0.1:1", "--json")
    assert done.returncode == 2
    assert document(done)["error"] == "the recovery was not confirmed; nothing was changed"
    assert "Recover 1 tablet" in done.stderr


def test_without_a_terminal_the_recovery_needs_yes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO("y\n"))
    done = run("recover", "apply", saved(tmp_path, TABLET), "--connect", "127.0.0.1:1", "--json")
    assert done.returncode == 2 and "--yes" in document(done)["error"]
