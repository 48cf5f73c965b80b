"""Who is in the environment: many readers for the length of one call, or one who changes the map.

LMDB may move its map only while no transaction is open, so a change waits until every read that has
begun is over, and reads that begin meanwhile wait for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ReaderGate:
    """At most ``readers_max`` readers, or one holder of the whole. Any thread."""

    def __init__(self, readers_max: int) -> None:
        self._readers_max = readers_max
        self._changed = threading.Condition()
        self._readers = 0
        self._draining = False

    @property
    def readers(self) -> int:
        """How many reads are under way."""
        return self._readers

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Be one of the readers; waits for a slot, and while somebody drains."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def enter(self) -> None:
        """Begin to read; ``leave`` has to follow."""
        with self._changed:
            while self._draining or self._readers >= self._readers_max:
                self._changed.wait()
            self._readers += 1

    def leave(self) -> None:
        """Be done with reading."""
        with self._changed:
            self._readers -= 1
            if self._draining or self._readers == self._readers_max - 1:
                self._changed.notify_all()

    @contextmanager
    def drained(self) -> Iterator[None]:
        """Hold the environment alone. One thread at a time, never while it reads itself."""
        with self._changed:
            self._draining = True
            self._changed.wait_for(lambda: self._readers == 0)
        try:
            yield
        finally:
            with self._changed:
                self._draining = False
                self._changed.notify_all()
