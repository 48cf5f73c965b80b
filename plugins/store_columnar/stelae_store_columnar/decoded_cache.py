"""The cache of decoded columns of blocks, for reads of single rows: one for all tablets of a node.

It is bounded in bytes; the least recently used go first, whatever tablet they are of. So a tablet that is read much may
have all of it, and a thousand idle tablets need no memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from itertools import count
from threading import Lock
from typing import Any, TypeAlias

CacheKey: TypeAlias = tuple[int, Hashable]
"""The number of an owner, and its key."""


class DecodedCache:
    """Values by key, with a limit on their total size. Any thread may use it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._entries: OrderedDict[CacheKey, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()
        self._owners = count()

    @property
    def size_bytes(self) -> int:
        """Total size of the values now."""
        return self._bytes

    def share(self) -> CacheShare:
        """Return a new owner of entries."""
        return CacheShare(self, next(self._owners))

    def get(self, key: CacheKey) -> Any:
        """Return a value and mark it as recently used, or return ``None`` if it is not in the cache."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: CacheKey, value: Any, size_bytes: int) -> None:
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

    def drop(self, owner: int) -> None:
        """Remove the values of an owner."""
        with self._lock:
            for key in [key for key in self._entries if key[0] == owner]:
                self._bytes -= self._entries.pop(key)[1]


class CacheShare:
    """The entries of one opened store. Another one never sees them, even if it is opened in the same directory: files
    of a replica that is copied anew have the names of earlier ones, and other rows."""

    def __init__(self, cache: DecodedCache, owner: int) -> None:
        self._cache = cache
        self._owner = owner

    @property
    def size_bytes(self) -> int:
        """Total size of the values of all owners."""
        return self._cache.size_bytes

    def get(self, key: Hashable) -> Any:
        """Return a value and mark it as recently used, or return ``None`` if it is not in the cache."""
        return self._cache.get((self._owner, key))

    def put(self, key: Hashable, value: Any, size_bytes: int) -> None:
        """Store a value, unless it is larger than the cache."""
        self._cache.put((self._owner, key), value, size_bytes)

    def clear(self) -> None:
        """Remove the values of this owner, whose store is closed."""
        self._cache.drop(self._owner)
