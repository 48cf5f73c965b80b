"""The cache of decoded columns of blocks, for reads of single rows.

It is bounded in bytes; the least recently used go first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any


class DecodedCache:
    """Values by key, with a limit on their total size. Any thread may use it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    @property
    def size_bytes(self) -> int:
        """Total size of the values now."""
        return self._bytes

    def get(self, key: Hashable) -> Any:
        """Return a value and mark it as recently used, or return ``None`` if it is not in the cache."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: Any, size_bytes: int) -> None:
        """Store a value, unless it is larger than the cache."""
        if size_bytes > self._bytes_max:
            return
        with self._lock:
            old = self._entries.pop(key, None)
            self._bytes += size_bytes - (old[1] if old else 0)
            self._entries[key] = (value, size_bytes)
            while self._bytes > self._bytes_max:
                _, (_, freed) = self._entries.popitem(last=False)
                self._bytes -= freed
