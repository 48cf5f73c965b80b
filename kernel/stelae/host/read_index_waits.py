"""Reads that wait for a confirmed read index, and then for it to be applied (C14)."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from stelae.spi.consensus import ReadRequest
from stelae.spi.errors import StelaeError

ReadDone: TypeAlias = Callable[[int | StelaeError], None]


class ReadIndexWaits:
    """Pending reads of one replica. ``tokens`` ascend and are shared by all that asks its core for something;
    ``snapshot`` gives the hybrid timestamp of the last applied entry."""

    def __init__(self, tokens: Iterator[int], snapshot: Callable[[], int]) -> None:
        self._tokens = tokens
        self._snapshot = snapshot
        self._unconfirmed: dict[int, ReadDone] = {}
        self._waiting: list[tuple[int, ReadDone]] = []

    def request(self, done: ReadDone) -> ReadRequest:
        """Return the event that asks for a read index on behalf of ``done``."""
        token = next(self._tokens)
        self._unconfirmed[token] = done
        return ReadRequest(token)

    def confirmed(self, token: int, index: int, applied_index: int) -> None:
        """A majority confirmed ``index``; answer now if it is applied, else when it is."""
        done = self._unconfirmed.pop(token, None)
        if done is not None and index <= applied_index:
            done(self._snapshot())
        elif done is not None:
            self._waiting.append((index, done))

    def applied(self, index: int) -> None:
        """Everything up to ``index`` is applied: answer the reads that waited for it."""
        if not self._waiting:
            return
        due = [done for confirmed, done in self._waiting if confirmed <= index]
        self._waiting = [read for read in self._waiting if read[0] > index]
        for done in due:
            done(self._snapshot())

    def failed(self, token: int, error: StelaeError) -> bool:
        """Answer one read with an error; False if the token is not a read's."""
        done = self._unconfirmed.pop(token, None)
        if done is not None:
            done(error)
        return done is not None

    def fail_all(self, error: StelaeError) -> None:
        """Answer every pending read with an error."""
        pending = [*self._unconfirmed.values(), *(done for _, done in self._waiting)]
        self._unconfirmed.clear()
        self._waiting.clear()
        for done in pending:
            done(error)
