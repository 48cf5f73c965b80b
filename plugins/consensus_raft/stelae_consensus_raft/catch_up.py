"""Measures whether a member without a vote has caught up, in rounds of what was really sent (Raft thesis, 4.2.1).

A round begins with the last index of the leader's log at that moment. It ends when the member has acknowledged that
index. Then the next round begins, with what was appended meanwhile. If a round took less than an election timeout, the
rest takes about as long: were the member promoted now, commits would wait for it no longer than for an election.

A count of missing entries would say less: their size and the speed of the member's link and disk decide."""

from __future__ import annotations


class CatchUp:
    """The rounds of one member. It has no round while the leader does not know where their logs agree."""

    __slots__ = ("_began_us", "_target", "_took_us")

    def __init__(self) -> None:
        self._target: int | None = None
        self._began_us = 0
        self._took_us: int | None = None

    def interrupted(self) -> None:
        """Forget all rounds: messages may be lost, or the member needs a copy."""
        self._target = self._took_us = None

    def acknowledged(self, match: int, last_index: int, now_us: int) -> None:
        """Note that the member's log is durable and equal up to ``match``. The leader's log ends at ``last_index``."""
        if self._target is not None:
            if match < self._target:
                return
            self._took_us = now_us - self._began_us
        if match >= last_index:
            self._took_us = 0  # Nothing is left to send.
        self._target, self._began_us = last_index, now_us

    def is_caught_up(self, match: int, now_us: int, timeout_us: int) -> bool:
        """Return true if the last round took less than ``timeout_us``, and the present one has not taken longer."""
        if self._target is None or self._took_us is None or self._took_us >= timeout_us:
            return False
        return match >= self._target or now_us - self._began_us < timeout_us
