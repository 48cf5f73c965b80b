"""A lock for an environment: shared for reads, exclusive for a change of the map.

LMDB may move its map only while no transaction is open. So a change waits for the reads under way, and new reads wait
for the change."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ReaderGate:
    """Admits at most ``readers_max`` readers, or one exclusive holder. Any thread."""

    def __init__(self, readers_max: int) -> None:
        self._readers_max = readers_max
        self._changed = threading.Condition()
        self._readers = 0
        self._draining = False

    @property
    def readers(self) -> int:
        """Number of reads under way."""
        return self._readers

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count as a reader. Waits for a free slot and for the end of an exclusive hold."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def enter(self) -> None:
        """Begin a read. ``leave`` must follow."""
        with self._changed:
            while self._draining or self._readers >= self._readers_max:
                self._changed.wait()
            self._readers += 1

    def leave(self) -> None:
        """End a read."""
        with self._changed:
            self._readers -= 1
            if self._draining or self._readers == self._readers_max - 1:
                self._changed.notify_all()

    @contextmanager
    def drained(self) -> Iterator[None]:
        """Hold the environment exclusively. One thread at a time, and not while it reads itself."""
        with self._changed:
            self._draining = True
            self._changed.wait_for(lambda: self._readers == 0)
        try:
            yield
        finally:
            with self._changed:
                self._draining = False
                self._changed.notify_all()
