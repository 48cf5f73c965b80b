"""How old a master's catalog may be, as far as the master can tell.

The time of the last entry does not say it: on an idle cluster it only grows older. So every master asks the leader, the
leader itself included, for a *read index*: an index up to which everything is committed that was acknowledged before
the question. Once that much is applied here, the catalog holds all that was acknowledged before the question was put.

Invariants
    1. What counts is when the question was put, on the clocks of the master that put it: neither the way of the answer
       nor the clock of another master makes a catalog look fresher than it is.
    2. An answer counts once the catalog holds what it names, and not before. It stays true whoever leads afterwards:
       what is committed stays.
    3. The age is the greater one by two clocks. The hybrid clock stands still while it is ahead of this machine's, the
       monotonic one while the machine sleeps.
    4. Questions and answers write nothing to the log."""

from __future__ import annotations

from stelae.server.master.core.events import AskReadIndex, CaughtUp, Effect, MasterTick, ReadIndexAnswered
from stelae.spi.ids import NodeId

LEADING_US = 200_000
"""How often a leader has itself confirmed, so that stale reads of it are as fresh as that."""

FOLLOWING_US = 500_000
"""How often another master asks: each question costs the leader a round of the majority."""


class Freshness:
    """When to ask the leader, and what its answers amount to.

    Attributes:
        due_us: when to ask next, if there is a leader.
    """

    def __init__(self) -> None:
        self.due_us = 0
        self._level: MasterTick | None = None  #: All that was acknowledged before it is in the catalog.
        self._waiting: ReadIndexAnswered | None = None  #: An answer beyond what is applied.

    def age_us(self, now: MasterTick) -> int | None:
        """Return how old the catalog is at most; ``None``: this master cannot say."""
        level = self._level
        return None if level is None else max(now.now_us - level.now_us, now.wall_us - level.wall_us)

    def ask(self, now: MasterTick, leader: NodeId | None, *, leads: bool) -> list[Effect]:
        """Ask the leader, if one is known and it is time."""
        if leader is None or now.now_us < self.due_us:
            return []
        self.due_us = now.now_us + (LEADING_US if leads else FOLLOWING_US)
        return [AskReadIndex(now, leader)]

    def take_answer(self, event: ReadIndexAnswered, applied: int) -> None:
        """Take an answer. Of those that have to wait one is kept: that which will be true first."""
        if event.index <= applied:
            self._rise(event.asked)
        elif self._waiting is None or event.index <= self._waiting.index:
            self._waiting = event

    def applied(self, index: int) -> None:
        """Take that the catalog holds everything up to ``index``."""
        if self._waiting is not None and self._waiting.index <= index:
            self._rise(self._waiting.asked)
            self._waiting = None

    def caught_up(self, event: CaughtUp, now: MasterTick) -> None:
        """Take a time of the hybrid clock up to which the catalog holds everything."""
        age_us = max(0, now.wall_us - event.wall_us)
        self._rise(MasterTick(now.now_us - age_us, now.wall_us - age_us))

    def _rise(self, level: MasterTick) -> None:
        if self._level is None or level.now_us > self._level.now_us:
            self._level = level
