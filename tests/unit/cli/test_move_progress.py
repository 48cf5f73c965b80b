"""The steps of an addition and of a move in words, and the progress of copies."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from io import StringIO
from typing import Any

import pytest

from stelae.cli.copy_amount import CopyAmount, amount_of
from stelae.cli.kit.status_line import StatusLine
from stelae.cli.member_text import NamedNode
from stelae.cli.move_progress import MoveProgress, Step, step_of
from stelae.protocol.copy_list_messages import CopyLine, ReportedCopyPhase
from stelae.protocol.member_messages import ConfigView
from stelae.spi.errors import DeadlineExceeded
from stelae.spi.ids import OpId
from stelae.spi.members import MemberType
from tests.unit.client.member_views import LEADER, NEW, OTHER, T, view

V, P, W = MemberType.VOTER, MemberType.PRE_VOTER, MemberType.WITNESS
MIB = 1 << 20


def copy(done: int = 312 * MIB, total: int = 940 * MIB, eta_ms: int | None = 8_000, **fields: Any) -> CopyLine:
    line = {"tablet_id": T, "table_id": "t", "leader": LEADER, "source": LEADER, "rows_only": False, **fields}
    return CopyLine(bytes_done=done, bytes_total=total, bytes_fetched=done, eta_ms=eta_ms, **line)


WAITS = copy(0, 0, None, waits=True)


@pytest.mark.parametrize(
    ("shown", "copying", "step"),
    [
        (view(), False, Step.ASKED),
        (view(pending=P), False, Step.ADDED),
        (view(P, state="COPY"), False, Step.COPYING),
        (view(P), True, Step.COPYING),
        (view(P, match=4), False, Step.CATCHING_UP),
        (view(P, pending=V), False, Step.CATCHING_UP),
        (view(V), False, Step.PROMOTED),
        (view(W), True, Step.PROMOTED),
    ],
)
def test_the_steps_of_a_move_follow_the_committed_config(shown: ConfigView, copying: bool, step: Step) -> None:
    assert step_of(shown, NEW, OTHER, copying=copying) is step


def test_the_last_step_is_the_removal_and_of_an_addition_the_vote() -> None:
    assert step_of(view(V), NEW, None, copying=False) is Step.DONE
    assert step_of(view(V), LEADER, NEW, copying=False) is Step.PROMOTED
    assert step_of(view(), LEADER, NEW, copying=False) is Step.DONE


def test_the_amount_of_copies_is_their_sum_and_ends_with_the_slowest() -> None:
    assert str(amount_of([copy()])) == "312.0 MiB of 940.0 MiB at 78.5 MiB/s, about 8 s left"
    both = amount_of([copy(0, 100, 1000), copy(50, 100, 5000), WAITS])
    assert both == CopyAmount(bytes_done=50, bytes_total=200, bytes_per_s=110, eta_ms=5000)
    assert str(amount_of([copy(0, 100, 1000), copy(50, 100, None)])) == "50 B of 200 B at 100 B/s"
    assert both.time_ms(1100) == 10_000


def test_what_is_unknown_is_null_in_the_document_and_left_out_of_the_text() -> None:
    assert amount_of([]) == amount_of([WAITS]) == amount_of([copy(0, 0, None)]) == CopyAmount()
    assert CopyAmount().document() == {"bytes_done": None, "bytes_total": None, "bytes_per_s": None, "eta_ms": None}
    assert (str(CopyAmount()), CopyAmount().time_ms(5)) == ("begins", None)
    assert str(amount_of([copy(eta_ms=None)])) == "312.0 MiB of 940.0 MiB"
    assert amount_of([copy(940 * MIB, 940 * MIB, 0)]).document()["bytes_per_s"] is None


class Shown:
    """A move from ``other:1`` to ``new:1``, whose copies the test says."""

    def __init__(self, *copies: CopyLine | None, clock_s: Callable[[], float] = lambda: 0.0) -> None:
        self._copies = list(copies)
        source, target = NamedNode(OTHER, "other:1"), NamedNode(NEW, "new:1")
        self.progress = MoveProgress(StatusLine(True), target, source, self._look, clock_s)

    async def _look(self) -> CopyLine | None:
        return self._copies.pop(0) if self._copies else None

    def text(self, shown: ConfigView) -> str:
        self.progress.see(shown)
        return self.progress.text.removeprefix(f"new:1 ({NEW}): ")

    def look(self) -> None:
        run(self.progress.look())


def run(call: Coroutine[Any, Any, None]) -> None:
    asyncio.run(call)


def test_each_step_of_a_move_in_words() -> None:
    move = Shown(WAITS, copy(0, 0, None), copy(), copy(paused=True, eta_ms=None), copy(rows_only=True), None)
    assert move.text(view()) == "the leader is asked to add it"
    assert move.text(view(pending=P)) == "it is added in config 1.2, which is not committed yet"
    lost = view(P, state="COPY", log_base=OpId(1, 4))
    assert move.text(lost) == "PRE_VOTER, needs a copy: the leader's log begins behind entry 1.4"
    said = []
    for _ in range(5):
        move.look()
        said.append(move.text(lost))
    assert said == [
        "the copy waits for a slot",
        "the copy begins",
        "copying 312.0 MiB of 940.0 MiB at 78.5 MiB/s, about 8 s left",
        "copying 312.0 MiB of 940.0 MiB, paused",
        "copying rows 312.0 MiB of 940.0 MiB at 78.5 MiB/s, about 8 s left",
    ]
    move.look()
    assert move.text(view(P, match=4)) == "PRE_VOTER, has entry 4 of 9"
    old = f"the old replica on other:1 ({OTHER})"
    assert move.text(view(V)) == f"it has its vote; {old} is being removed"


def test_a_copy_that_has_all_bytes_shows_what_it_still_does() -> None:
    there = {"done": 940 * MIB, "eta_ms": None}
    phases = (ReportedCopyPhase.VERIFYING, ReportedCopyPhase.INSTALLING, ReportedCopyPhase.ENDING)
    move, said = Shown(*(copy(**there, phase=phase) for phase in phases)), []
    for _ in phases:
        move.look()
        said.append(move.text(view(P, state="COPY")))
    bytes_there = "copying 940.0 MiB of 940.0 MiB"
    assert said == [f"{bytes_there}, verifying", f"{bytes_there}, installing", bytes_there]


def test_a_member_that_catches_up_from_the_log_has_a_time_too() -> None:
    now = [0.0]
    move = Shown(clock_s=lambda: now[0])
    assert move.text(view(P, match=1)) == "PRE_VOTER, has entry 1 of 9"
    now[0] = 2.0
    assert move.text(view(P, match=5)) == "PRE_VOTER, has entry 5 of 9, about 2 s left"


def test_a_copy_that_was_seen_is_complete_once_the_member_has_its_vote() -> None:
    move = Shown(copy())
    move.look()
    move.text(view(P))
    assert move.progress.amount.eta_ms == 8_000
    move.text(view(V))
    assert move.progress.amount == CopyAmount(940 * MIB, 940 * MIB, move.progress.amount.bytes_per_s, 0)


def test_the_document_looks_once_more() -> None:
    move = Shown(copy())
    found: list[dict[str, Any]] = []

    async def document() -> None:
        found.append(await move.progress.document(view(P)))

    run(document())
    assert found[0]["step"] == "COPYING" and found[0]["copy"]["bytes_total"] == 940 * MIB


def test_a_wait_that_runs_out_of_time_says_how_much_was_copied() -> None:
    move = Shown(copy())

    async def waited() -> None:
        async with move.progress as progress:
            await progress.look()
            progress.see(view(P))
            raise DeadlineExceeded("not a voter yet")

    with pytest.raises(DeadlineExceeded, match=r"^not a voter yet \(copied: 312\.0 MiB of 940\.0 MiB at 78"):
        run(waited())


def test_a_defect_of_the_looks_is_raised_unless_the_call_has_an_error_of_its_own() -> None:
    move = Shown(copy())
    failing: list[Exception] = [KeyError("defect")]

    async def look() -> CopyLine | None:
        raise failing[0]

    async def waited(error: Exception | None) -> None:
        async with move.progress:
            await asyncio.sleep(0)
            if error is not None:
                raise error

    move.progress._look = look
    with pytest.raises(KeyError, match="defect"):
        run(waited(None))
    with pytest.raises(DeadlineExceeded, match="not a voter yet"):
        run(waited(DeadlineExceeded("not a voter yet")))


class Terminal(StringIO):
    """Standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_every_new_step_is_shown_at_once_and_the_rest_no_more_often_than_people_can_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    move = Shown()
    for shown in (view(), view(), view(pending=P), view(P, match=4), view(P, match=5), view(V)):
        move.text(shown)
    lines = [line.partition(": ")[2] for line in capsys.readouterr().err.splitlines()]
    assert [line[:12] for line in lines] == ["the leader i", "it is added ", "PRE_VOTER, h", "it has its v"]


def test_on_a_terminal_the_steps_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    move = Shown()
    for shown in (view(), view(pending=P), view(V)):
        move.text(shown)
    written = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert written.count("\r") == 3 and "\n" not in written
