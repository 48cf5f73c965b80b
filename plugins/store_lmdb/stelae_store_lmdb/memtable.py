"""The memtable: the versions that were applied since the last flush, as a chain of versions for each key.

A version is an immutable tuple ``(timestamp, index, contents, previous)``. ``contents`` are the bytes that the
environment will store. Timestamps and indexes never rise along ``previous``. One thread writes; any thread may read at
the same time. A flush replaces the memtable with a new, empty one. The old one never changes again, so readers may
still use it."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import TypeAlias

from stelae_store_lmdb.tree import is_deletion

Version: TypeAlias = "tuple[int, int, bytes, Version | None]"

_VERSION_BYTES = 240  #: Memory of a version besides its bytes: its tuple, its key, its entries in dict and index.


def visible(newest: Version | None, timestamp: int, index: int) -> Version | None:
    """Return the version that a view sees, possibly a deletion, or ``None`` if the chain has none for it."""
    while newest is not None and (newest[0] > timestamp or newest[1] > index):
        newest = newest[3]
    return newest


def versions_of(newest: Version | None) -> Iterator[Version]:
    """Yield the versions of a chain, newest first."""
    while newest is not None:
        yield newest
        newest = newest[3]


class LmdbMemtable:
    """Chains of versions by encoded key."""

    def __init__(self) -> None:
        self.chains: dict[bytes, Version] = {}
        self.size_bytes = 0
        self._superseded: deque[tuple[int, bytes]] = deque()
        self._sorted: list[bytes] = []
        self._fresh: list[bytes] = []
        self._lock = Lock()

    def put(self, key: bytes, timestamp: int, index: int, contents: bytes) -> None:
        """Add one version. The versions of a key are added in order."""
        previous = self.chains.get(key)
        if previous is not None or is_deletion(contents):
            self._superseded.append((timestamp, key))
        # The chain must exist before the index has the key, because the index drops keys without a chain.
        self.chains[key] = (timestamp, index, contents, previous)
        if previous is None:
            self._fresh.append(key)
        self.size_bytes += _VERSION_BYTES + len(key) + len(contents)

    def sorted_keys(self) -> Sequence[bytes]:
        """Return all keys in order, each once, and perhaps some that were removed. The list never changes."""
        with self._lock:
            count = len(self._fresh)
            if count:
                # Two sorted lists, so sorting them again is a merge. A key that was removed and added again is in both.
                merged = self._sorted + sorted(self._fresh[:count])
                merged.sort()
                self._sorted = [key for key in dict.fromkeys(merged) if key in self.chains]
                del self._fresh[:count]
            return self._sorted

    def between(self, low: bytes | None, high: bytes | None, backwards: bool, count: int) -> Sequence[bytes]:
        """Return the first ``count`` keys from ``low`` to before ``high``, or the last ones in descending order."""
        keys = self.sorted_keys()
        start = 0 if low is None else bisect_left(keys, low)
        end = len(keys) if high is None else bisect_left(keys, high)
        if backwards:
            return keys[max(start, end - count) : max(start, end)][::-1]
        return keys[start : min(end, start + count)]

    def drop_superseded(self, limit: int, keys_max: int, is_below: Callable[[bytes], bool]) -> None:
        """Drop the versions that no view at or above timestamp ``limit`` can see, for up to ``keys_max`` keys.

        ``is_below`` returns true for a key with versions in the environment, which a deletion in memory may hide."""
        for _ in range(keys_max):
            if not self._superseded or self._superseded[0][0] > limit:
                return
            key = self._superseded.popleft()[1]
            newest = self.chains.get(key)
            if newest is not None:
                self._prune(key, newest, limit, is_below)

    def _prune(self, key: bytes, newest: Version, limit: int, is_below: Callable[[bytes], bool]) -> None:
        later = []
        at: Version | None = newest
        while at is not None and at[0] > limit:
            later.append(at)
            at = at[3]
        if at is None:
            return
        dropped = [*versions_of(at[3])]
        chain: Version | None = (*at[:3], None)
        if is_deletion(at[2]) and not is_below(key):
            dropped.append(at)
            chain = None
        for version in reversed(later):
            chain = (*version[:3], chain)
        if chain is None:
            del self.chains[key]
        else:
            self.chains[key] = chain
        self.size_bytes -= sum(_VERSION_BYTES + len(key) + len(version[2]) for version in dropped)
