"""Linearizable reads that wait: first until a majority has confirmed a read index, then until it is applied (C14)."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from stelae.spi.consensus_events import ReadRequest
from stelae.spi.errors import StelaeError

ReadDone: TypeAlias = Callable[[int | StelaeError], None]


class ReadIndexWaits:
    """The waiting reads of one replica.

    ``tokens`` ascend; all requests to the replica's core take theirs from it. ``snapshot`` returns the hybrid timestamp
    of the last applied entry."""

    def __init__(self, tokens: Iterator[int], snapshot: Callable[[], int]) -> None:
        self._tokens = tokens
        self._snapshot = snapshot
        self._unconfirmed: dict[int, ReadDone] = {}
        self._waiting: list[tuple[int, ReadDone]] = []

    def request(self, done: ReadDone, *, by_lease: bool = True) -> ReadRequest:
        """Return the event that asks the core for a read index. ``done`` gets the result of the read.

        The result is the hybrid timestamp at which the read can be served, or an error."""
        token = next(self._tokens)
        self._unconfirmed[token] = done
        return ReadRequest(token, by_lease)

    def confirmed(self, token: int, index: int, applied_index: int) -> None:
        """Handle a read index that a majority confirmed: finish the read if ``index`` is applied, or let it wait."""
        done = self._unconfirmed.pop(token, None)
        if done is not None and index <= applied_index:
            done(self._snapshot())
        elif done is not None:
            self._waiting.append((index, done))

    def applied(self, index: int) -> None:
        """Finish the reads whose read index is at or below ``index``, which is applied now."""
        if not self._waiting:
            return
        due = [done for confirmed, done in self._waiting if confirmed <= index]
        self._waiting = [read for read in self._waiting if read[0] > index]
        for done in due:
            done(self._snapshot())

    def failed(self, token: int, error: StelaeError) -> bool:
        """Finish one read with an error. Return False if the token is not that of a read."""
        done = self._unconfirmed.pop(token, None)
        if done is not None:
            done(error)
        return done is not None

    def fail_all(self, error: StelaeError) -> None:
        """Finish all reads with an error."""
        pending = [*self._unconfirmed.values(), *(done for _, done in self._waiting)]
        self._unconfirmed.clear()
        self._waiting.clear()
        for done in pending:
            done(error)
