"""What is applied and not flushed: for each key its newest version, linked to the ones before.

A version is an immutable tuple ``(timestamp, index, contents, previous)``, contents being what the environment gets.
Timestamps and indexes never rise along ``previous``. One thread writes; any may read beside it. A flush puts a new,
empty part in the place of this one, which is never changed again and serves whoever still holds it."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import TypeAlias

from stelae_store_lmdb.tree import is_deletion

Version: TypeAlias = "tuple[int, int, bytes, Version | None]"

_VERSION_BYTES = 240  #: What a version costs besides its bytes: its tuple, its key, its places in dict and index.


def visible(newest: Version | None, timestamp: int, index: int) -> Version | None:
    """Return the version that a view sees; a deletion counts as one, ``None`` is "not here"."""
    while newest is not None and (newest[0] > timestamp or newest[1] > index):
        newest = newest[3]
    return newest


def versions_of(newest: Version | None) -> Iterator[Version]:
    """Go through a chain, newest first."""
    while newest is not None:
        yield newest
        newest = newest[3]


class MemoryPart:
    """Versions by encoded key."""

    def __init__(self) -> None:
        self.chains: dict[bytes, Version] = {}
        self.size_bytes = 0
        self._superseded: deque[tuple[int, bytes]] = deque()
        self._sorted: list[bytes] = []
        self._fresh: list[bytes] = []
        self._lock = Lock()

    def put(self, key: bytes, timestamp: int, index: int, contents: bytes) -> None:
        """Write one version; those of a key come in order."""
        previous = self.chains.get(key)
        if previous is not None or is_deletion(contents):
            self._superseded.append((timestamp, key))
        # Before the index has the key: it leaves out keys without a chain.
        self.chains[key] = (timestamp, index, contents, previous)
        if previous is None:
            self._fresh.append(key)
        self.size_bytes += _VERSION_BYTES + len(key) + len(contents)

    def sorted_keys(self) -> Sequence[bytes]:
        """Return all keys in order, each once, and perhaps some that went; the list is never changed afterwards."""
        with self._lock:
            count = len(self._fresh)
            if count:
                # Two sorted runs, so sorting them again is a merge. A key that went and came back stands in both.
                merged = self._sorted + sorted(self._fresh[:count])
                merged.sort()
                self._sorted = [key for key in dict.fromkeys(merged) if key in self.chains]
                del self._fresh[:count]
            return self._sorted

    def between(self, low: bytes | None, high: bytes | None, backwards: bool, count: int) -> Sequence[bytes]:
        """Return the first ``count`` keys from ``low`` to before ``high``, or the last ones, descending."""
        keys = self.sorted_keys()
        start = 0 if low is None else bisect_left(keys, low)
        end = len(keys) if high is None else bisect_left(keys, high)
        if backwards:
            return keys[max(start, end - count) : max(start, end)][::-1]
        return keys[start : min(end, start + count)]

    def forget(self, limit: int, keys_max: int, is_below: Callable[[bytes], bool]) -> None:
        """Let go of what no view at or above timestamp ``limit`` can see, of a bounded number of keys.

        ``is_below`` says of a key whether the environment has versions of it, which a deletion here may hide."""
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
        gone = [*versions_of(at[3])]
        kept: Version | None = (*at[:3], None)
        if is_deletion(at[2]) and not is_below(key):
            gone.append(at)
            kept = None
        for version in reversed(later):
            kept = (*version[:3], kept)
        if kept is None:
            del self.chains[key]
        else:
            self.chains[key] = kept
        self.size_bytes -= sum(_VERSION_BYTES + len(key) + len(version[2]) for version in gone)
