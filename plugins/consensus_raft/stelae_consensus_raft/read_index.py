"""The read index: reads wait until a majority has confirmed that the leader still leads (Raft thesis, 6.4).

A read writes nothing to the log. It notes the commit index at its arrival. It is served when a majority has confirmed
the leader after that, and the replica has applied the log up to that index."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from stelae.spi.consensus import ReadReady


@dataclass(frozen=True, slots=True)
class _PendingRead:
    token: int
    index: int  #: The commit index at the arrival of the read.
    round: int  #: The round of confirmation that must succeed.


class ReadQueue:
    """The reads of one leadership in order of arrival, each with the round of confirmation that it waits for.

    A read waits for the round that starts after its arrival. An answer to an older round proves leadership only for a
    time before the read."""

    __slots__ = ("_reads", "_round_needed", "round")

    def __init__(self) -> None:
        self.round = 0
        self._round_needed = False
        self._reads: deque[_PendingRead] = deque()

    def __len__(self) -> int:
        return len(self._reads)

    def add(self, token: int, commit: int) -> None:
        """Queue a read. ``commit`` is the commit index at its arrival, which must be applied before it is served."""
        self._round_needed = True
        self._reads.append(_PendingRead(token, commit, self.round + 1))

    def need_round(self) -> None:
        """Start a round soon although no read waits for it, to renew the lease (see ``read_lease``)."""
        self._round_needed = True

    def start_round(self) -> bool:
        """Start a round for the reads that arrived since the last one. Returns false if there are none."""
        if not self._round_needed:
            return False
        self._round_needed = False
        self.round += 1
        return True

    def confirmed(self, round_number: int) -> list[ReadReady]:
        """Remove and return the reads that may be served, because a majority answered ``round_number``."""
        confirmed = []
        while self._reads and self._reads[0].round <= round_number:
            read = self._reads.popleft()
            confirmed.append(ReadReady(read.token, read.index))
        return confirmed

    def drain(self) -> list[int]:
        """Remove all reads and return their tokens."""
        tokens = [read.token for read in self._reads]
        self._reads.clear()
        self._round_needed = False
        return tokens
