"""The read lease of a leader: for this time it answers reads without asking a majority again (durability rule 13).

A voter that heard from a leader grants no other candidate a vote for one election timeout T, and promises that in its
answers. Once a majority has answered a read round with that promise, no other leader can be elected until T after the
round was sent. So the leader may answer reads until then, less what two clocks may differ by within that time.

- The lease counts from the time at which the round was first *sent*: when a voter received it is not known.
- It is given up before a handover, because voters do not withhold their votes from the successor. A request to the
  successor may arrive at any later time. So once one was sent, this leadership has no lease any more.
- It is given up when the config changes. After two changes, a new majority may lack all voters that promised.
- A voter that restarts has forgotten whom it heard. It withholds its vote after its start for as long as it may have
  promised before (``HardState.promised_us``). T may be another one after the start, but the leader counts on the old.
"""

from __future__ import annotations

from collections import deque

_PARTS = 1_000_000


def lease_length_us(timeout_us: int, drift_ppm_max: int) -> int:
    """Return how long a lease may be by the leader's clock, if voters withhold votes for ``timeout_us`` by theirs.

    Args:
        timeout_us: the election timeout.
        drift_ppm_max: by how many parts per million each clock may run too fast or too slow. 0: not known, and there
            are no leases.
    """
    if not drift_ppm_max:
        return 0
    return timeout_us * (_PARTS - drift_ppm_max) // (_PARTS + drift_ppm_max)


class ReadLease:
    """The lease of one leadership.

    Args:
        length_us: see :func:`lease_length_us`; 0: there are no leases.
    """

    __slots__ = ("_begun", "_from_round", "_length_us", "_until_us", "_void")

    def __init__(self, length_us: int) -> None:
        self._length_us = length_us
        self._until_us = 0
        self._from_round = 0
        self._void = length_us <= 0
        self._begun: deque[tuple[int, int]] = deque()

    def round_begins(self, round_number: int, now_us: int) -> None:
        """Note that a read round is sent for the first time. Rounds that can give no lease any more are forgotten."""
        begun = self._begun
        while begun and begun[0][1] + self._length_us <= now_us:
            begun.popleft()
        if not self._void:
            begun.append((round_number, now_us))

    def promised(self, round_number: int) -> None:
        """Note that a majority has answered a round, and withholds its votes."""
        begun = self._begun
        while begun and begun[0][0] <= round_number:
            number, sent_us = begun.popleft()
            if number >= self._from_round:
                self._until_us = max(self._until_us, sent_us + self._length_us)

    def is_valid(self, now_us: int) -> bool:
        """Return true if no other leader can have been elected up to ``now_us``."""
        return now_us < self._until_us

    def ends_soon(self, now_us: int) -> bool:
        """Return true if less than half of the lease is left, so that it should be renewed."""
        return not self._void and now_us >= self._until_us - self._length_us // 2

    def config_changed(self, round_number: int) -> None:
        """Give the lease up. Promises of the rounds up to ``round_number`` do not count any more."""
        self._until_us = 0
        self._from_round = round_number + 1

    def give_up(self) -> None:
        """Give the lease up for the rest of the leadership, because a successor is asked to campaign."""
        self._until_us = 0
        self._void = True
        self._begun.clear()
