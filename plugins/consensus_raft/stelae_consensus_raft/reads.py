"""Reads that wait until a majority has confirmed that the leader still leads (thesis, 6.4)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from stelae.spi.consensus import ReadReady


@dataclass(frozen=True, slots=True)
class _Read:
    token: int
    index: int
    round: int


class ReadQueue:
    """Reads of one leadership, in order of arrival, each tied to a round of confirmation.

    A read belongs to the round that starts *after* it arrived: an answer to an older round proves
    leadership only for a time before the read."""

    __slots__ = ("_open", "_reads", "round")

    def __init__(self) -> None:
        self.round = 0
        self._open = False
        self._reads: deque[_Read] = deque()

    def __len__(self) -> int:
        return len(self._reads)

    def add(self, token: int, commit: int) -> None:
        """Queue a read; everything committed when it arrived must be applied to serve it."""
        self._open = True
        self._reads.append(_Read(token, commit, self.round + 1))

    def start_round(self) -> bool:
        """Start a round for the reads that wait for one; false if none does."""
        if not self._open:
            return False
        self._open = False
        self.round += 1
        return True

    def confirmed(self, round_number: int) -> list[ReadReady]:
        """A majority answered ``round_number``: return the reads that may be served."""
        ready = []
        while self._reads and self._reads[0].round <= round_number:
            read = self._reads.popleft()
            ready.append(ReadReady(read.token, read.index))
        return ready

    def drain(self) -> list[int]:
        """Remove every read and return the tokens."""
        tokens = [read.token for read in self._reads]
        self._reads.clear()
        self._open = False
        return tokens
