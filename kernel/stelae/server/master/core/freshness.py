"""Bounds the age of a master's catalog.

The time of the last entry is no bound, because an idle cluster writes no entries. So every master, also the leader,
asks the leader for a *read index*: everything acknowledged before the question is committed at that index or below.
Once the index is applied here, the catalog has everything that was acknowledged before the question.

Invariants
    1. The age counts from the time of the question, on the clocks of the master that asked. So neither the delay of
       the answer nor the clock of another master makes a catalog look fresher than it is.
    2. An answer counts only once its index is applied here. It stays true under later leaders, because committed
       entries stay.
    3. The age is the greater of the ages by two clocks. The hybrid clock stops while it is ahead of the machine's
       clock, and the monotonic clock stops while the machine sleeps.
    4. Questions and answers write nothing to the log."""

from __future__ import annotations

from stelae.server.master.core.events import AskReadIndex, CaughtUp, Effect, MasterTick, ReadIndexAnswered
from stelae.spi.ids import NodeId

LEADING_US = 200_000
"""The interval at which a leader is confirmed by a majority. It bounds the age of its stale reads."""

FOLLOWING_US = 500_000
"""The interval at which another master asks. Each question costs the leader a round to a majority."""


class Freshness:
    """Decides when to ask the leader, and keeps the age of the catalog.

    Attributes:
        due_us: when to ask next, if there is a leader.
    """

    def __init__(self) -> None:
        self.due_us = 0
        self._level: MasterTick | None = None  #: Everything acknowledged before this time is in the catalog.
        self._waiting: ReadIndexAnswered | None = None  #: An answer whose index is not applied yet.

    def age_us(self, now: MasterTick) -> int | None:
        """Return the greatest possible age of the catalog, or ``None`` if it is not known."""
        level = self._level
        return None if level is None else max(now.now_us - level.now_us, now.wall_us - level.wall_us)

    def ask(self, now: MasterTick, leader: NodeId | None, *, leads: bool) -> list[Effect]:
        """Ask the leader if one is known and the interval has passed."""
        if leader is None or now.now_us < self.due_us:
            return []
        self.due_us = now.now_us + (LEADING_US if leads else FOLLOWING_US)
        return [AskReadIndex(now, leader)]

    def take_answer(self, event: ReadIndexAnswered, applied: int) -> None:
        """Note an answer. Of the answers that have to wait, only the one with the lowest index is kept."""
        if event.index <= applied:
            self._rise(event.asked)
        elif self._waiting is None or event.index <= self._waiting.index:
            self._waiting = event

    def applied(self, index: int) -> None:
        """Note that the entries up to ``index`` are applied."""
        if self._waiting is not None and self._waiting.index <= index:
            self._rise(self._waiting.asked)
            self._waiting = None

    def caught_up(self, event: CaughtUp, now: MasterTick) -> None:
        """Note a time of the hybrid clock: everything acknowledged before is in the catalog."""
        age_us = max(0, now.wall_us - event.wall_us)
        self._rise(MasterTick(now.now_us - age_us, now.wall_us - age_us))

    def _rise(self, level: MasterTick) -> None:
        if self._level is None or level.now_us > self._level.now_us:
            self._level = level
