"""The sorted keys of a store, made when asked for."""

from __future__ import annotations

from collections.abc import Container
from threading import Lock


class KeyIndex:
    """Keys in order. ``add`` is called by one thread; ``keys`` by any, beside it.

    A key that was removed from the store may linger here until enough of them did: readers look
    each key up anyway."""

    def __init__(self) -> None:
        self._sorted: list[bytes] = []
        self._fresh: list[bytes] = []
        self._removed = 0
        self._lock = Lock()

    def add(self, keys: list[bytes]) -> None:
        """Take note of keys that were not in the store before."""
        self._fresh += keys

    def removed(self, count: int) -> None:
        """Take note that so many keys left the store."""
        self._removed += count

    def keys(self, present: Container[bytes]) -> list[bytes]:
        """Return all keys in order, each once; the list is never changed afterwards."""
        with self._lock:
            count = len(self._fresh)
            if count:
                # Two sorted runs, so sorting them again is a merge. A key that left the store and
                # came back stands in both.
                merged = self._sorted + sorted(self._fresh[:count])
                merged.sort()
                self._sorted = [*dict.fromkeys(merged)]
                del self._fresh[:count]
            if 2 * self._removed > len(self._sorted):
                self._removed = 0
                self._sorted = [key for key in self._sorted if key in present]
            return self._sorted
