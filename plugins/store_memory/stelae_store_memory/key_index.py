"""The sorted keys of a store. They are sorted when a reader asks for them."""

from __future__ import annotations

from collections.abc import Container
from threading import Lock


class KeyIndex:
    """The keys in order. One thread calls ``add``; any thread may call ``keys`` at the same time.

    A removed key may stay in the index until enough keys were removed. Readers look up each key anyway."""

    def __init__(self) -> None:
        self._sorted: list[bytes] = []
        self._unsorted: list[bytes] = []
        self._removed = 0
        self._lock = Lock()

    def add(self, keys: list[bytes]) -> None:
        """Add keys that were not in the store before."""
        self._unsorted += keys

    def removed(self, count: int) -> None:
        """Note that ``count`` keys were removed from the store."""
        self._removed += count

    def keys(self, present: Container[bytes]) -> list[bytes]:
        """Return all keys in order, each once. The list never changes."""
        with self._lock:
            count = len(self._unsorted)
            if count:
                # Two sorted lists, so sorting them again is a merge. A key that was removed and added
                # again is in both.
                merged = self._sorted + sorted(self._unsorted[:count])
                merged.sort()
                self._sorted = [*dict.fromkeys(merged)]
                del self._unsorted[:count]
            if 2 * self._removed > len(self._sorted):
                self._removed = 0
                self._sorted = [key for key in self._sorted if key in present]
            return self._sorted
