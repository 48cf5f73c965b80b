"""The steps of a replica that is added or moved, and how far the present one is, in words and as plain values."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, Self

from stelae.cli.copy_amount import CopyAmount, amount_of, left_text, phase_text
from stelae.cli.kit.pace import Pace
from stelae.cli.kit.status_line import StatusLine
from stelae.cli.member_text import NamedNode
from stelae.client.member_goals import is_promoted, lag_text
from stelae.protocol.copy_list_messages import CopyLine
from stelae.protocol.member_messages import ConfigView
from stelae.spi.errors import DeadlineExceeded
from stelae.spi.ids import NodeId

POLL_S = 0.5
"""Pause between two looks at the copy, in seconds."""


class Step(StrEnum):
    """How far a replica is that is added, or moved."""

    ASKED = "ASKED"  #: The leader was asked, and its config does not have the new member yet.
    ADDED = "ADDED"  #: The config with the new member is in the leader's log, and not committed.
    COPYING = "COPYING"
    CATCHING_UP = "CATCHING_UP"  #: It gets the entries that it lacks from the leader's log.
    PROMOTED = "PROMOTED"  #: It has its vote. In a move, the old replica is still a member.
    DONE = "DONE"


def step_of(view: ConfigView, target: NodeId, source: NodeId | None, *, copying: bool) -> Step:
    """Return the step of an addition, or of a move if there is a ``source``.

    Args:
        copying: whether the target is being copied to, or waits for that.
    """
    member = view.committed.member(target)
    if member is None:
        return Step.ASKED if view.config.member(target) is None else Step.ADDED
    if is_promoted(target, view):
        return Step.DONE if source is None or view.committed.member(source) is None else Step.PROMOTED
    waits = any(one.node_id == target and one.state == "COPY" for one in view.progress)
    return Step.COPYING if copying or waits else Step.CATCHING_UP


class MoveProgress:
    """Shows an addition or a move while a call waits for it, and asks the target for its copy meanwhile.

    Use as an asynchronous context manager around the call, with :meth:`see` as its ``on_progress``.

    Args:
        line: shows the text.
        target: the server that gets the replica.
        source: the member that is removed afterwards; ``None``: none.
        look: returns the copy of the tablet to the target; ``None``: there is none, or it does not tell.
        clock_s: a monotonic clock in seconds.

    Attributes:
        step: the last step that was seen.
        amount: how far its copy is, as last seen. A copy that was seen is complete once the member has its vote.
        text: the last text.
    """

    def __init__(
        self,
        line: StatusLine,
        target: NamedNode,
        source: NamedNode | None,
        look: Callable[[], Awaitable[CopyLine | None]],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._line = line
        self._target = target
        self._source = source
        self._look = look
        self._clock_s = clock_s
        self._copy: CopyLine | None = None
        self._pace: tuple[int, Pace] | None = None
        self.step = Step.ASKED
        self.amount = CopyAmount()
        self.text = ""

    def see(self, view: ConfigView) -> None:
        """Take a look of the call at the config, and show it. A new step is shown at once."""
        source = None if self._source is None else self._source.node_id
        step = step_of(view, self._target.node_id, source, copying=self._copy is not None)
        is_new, self.step = step is not self.step or not self.text, step
        if step in (Step.PROMOTED, Step.DONE) and (total := self.amount.bytes_total) is not None:
            self.amount = CopyAmount(total, total, self.amount.bytes_per_s, 0)
        self.text = f"{self._target}: {self._said(view)}"
        self._line.show(self.text, at_once=is_new)

    async def document(self, view: ConfigView) -> dict[str, Any]:
        """Look once more after the call, and return the fields for ``--json``; unknown ones are ``None``.

        Args:
            view: the config that the call has returned.
        """
        await self.look()
        self.see(view)
        return {"step": self.step.value, "copy": self.amount.document()}

    async def look(self) -> None:
        """Ask the target for its copy once. Without one, ``amount`` still shows the last copy that was seen."""
        self._copy = await self._look()
        if self._copy is not None and (amount := amount_of([self._copy])).is_known:
            self.amount = amount

    async def __aenter__(self) -> Self:
        self._looks = asyncio.create_task(self._look_on())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        """End the looks. A call that has run out of time gets what was seen last as an addition to its error."""
        self._looks.cancel()
        await asyncio.wait([self._looks])
        if error is None and not self._looks.cancelled():
            self._looks.result()  # It raises the defect that has ended the looks. An error of the call comes first.
        if isinstance(error, DeadlineExceeded) and self.step is Step.COPYING and self.amount.is_known:
            raise DeadlineExceeded(f"{error} (copied: {self.amount})") from error

    async def _look_on(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(POLL_S)

    def _said(self, view: ConfigView) -> str:
        target = self._target.node_id
        match self.step:
            case Step.ASKED:
                return "the leader is asked to add it"
            case Step.ADDED:
                return f"it is added in config {view.config.op_id}, which is not committed yet"
            case Step.COPYING:
                return lag_text(target, view) if self._copy is None else _copy_text(self._copy, self.amount)
            case Step.CATCHING_UP:
                return lag_text(target, view) + self._entries_left(view)
            case Step.PROMOTED:
                return f"it has its vote; the old replica on {self._source} is being removed"
            case Step.DONE:
                return "it has its vote" if self._source is None else f"the old replica on {self._source} is removed"

    def _entries_left(self, view: ConfigView) -> str:
        """Return the remaining time of a member that gets entries, from the rate since the first look at it."""
        known = next((one for one in view.progress if one.node_id == self._target.node_id), None)
        if known is None:
            return ""
        if self._pace is None:
            self._pace = known.match_index, Pace(self._clock_s(), known.match_index)
        first, pace = self._pace
        pace.note(self._clock_s(), known.match_index - first, known.match_index / max(1, view.last.index))
        return left_text(None if pace.left_s is None else int(pace.left_s * 1000))


def _copy_text(copy: CopyLine, amount: CopyAmount) -> str:
    what = "copying rows" if copy.rows_only else "copying"
    if copy.waits:
        return "the copy is paused, and has not begun" if copy.paused else "the copy waits for a slot"
    more = phase_text(copy.phase) + (", paused" if copy.paused else "")
    return f"{what} {amount}{more}" if copy.bytes_total else "the copy begins"
