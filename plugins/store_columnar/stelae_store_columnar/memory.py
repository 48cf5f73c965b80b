"""The part in memory: what was applied since the last flush."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from operator import le
from typing import Any

from stelae.rows.key_order import Comparable
from stelae_store_columnar.chunks import Chunk, merged
from stelae_store_columnar.newest import GONE, NewestVersions
from stelae_store_columnar.versions import Versions

VERSION_BYTES = 24  #: Timestamp, key and marks of a version, besides its values.
_MERGED_ROWS_MAX = 8192  #: Chunks of so many rows are left as they are.
_FAN_IN = 4  #: So many neighbours of about one size become one chunk.


class MemoryPart:
    """Versions that are not flushed, in chunks. Written by the applying thread; ``chunks`` is replaced whole, so that
    what a reader got of it stays as it is."""

    def __init__(self) -> None:
        self.chunks: tuple[Chunk, ...] = ()
        self.newest = NewestVersions()
        self._rows = 0
        self._values_bytes = 0
        self._superseded: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return self._rows

    @property
    def size_bytes(self) -> int:
        """Memory held, about."""
        return self._values_bytes + VERSION_BYTES * self._rows + self.newest.size_bytes

    def append_run(self, versions: Versions, bounds: tuple[Comparable, Comparable], size_bytes: int) -> None:
        """Take rows with strictly rising keys in a gap; none is a deletion."""
        self.newest.add_run(*bounds, self._rows, versions.keys)
        self._append(Chunk(self._rows, versions, bounds, True, size_bytes))

    def append(
        self, versions: Versions, keys: Sequence[Comparable], size_bytes: int, stamp: int, *, gone: bool, bottom: bool
    ) -> None:
        """Take versions whose ``keys`` are here as Python, too: all deletions, or none.

        ``stamp`` is the highest of their timestamps; at ``bottom`` a deletion has nothing to hide in blocks."""
        superseded = self.newest.put(keys, self._rows, gone)
        superseded += len(keys) if gone and bottom else 0
        if superseded:
            self._superseded.append((stamp, superseded))
        ascending = all(map(le, keys, keys[1:]))
        self._append(Chunk(self._rows, versions, (min(keys), max(keys)), ascending, size_bytes))

    def garbage(self, floor: int) -> int:
        """Return how many versions no read at or above ``floor`` sees, about."""
        return sum(count for stamp, count in self._superseded if stamp <= floor)

    def garbage_above(self, floor: int) -> Sequence[tuple[int, int]]:
        """Return what will be garbage later: timestamps and counts."""
        return [found for found in self._superseded if found[0] > floor]

    def restore(self, versions: Versions, values_bytes: int, garbage: Sequence[tuple[int, int]]) -> None:
        """Begin an empty part with sorted versions, several of one key among them."""
        keys = versions.keys.to_pylist()
        gone = [False] * len(keys) if versions.deleted is None else versions.deleted.to_pylist()
        for place, key in enumerate(keys):
            self.newest.put((key,), GONE if gone[place] else place, gone[place])
        self._superseded.extend(garbage)
        self._append(Chunk(0, versions, (keys[0], keys[-1]), True, values_bytes))

    def locate(self, number: int) -> tuple[int, int]:
        """Return the place of the chunk that holds a version, and the place within it."""
        place = bisect_right(self.chunks, number, key=_base) - 1
        return place, number - self.chunks[place].base

    def settle(self, types: Mapping[int, Any]) -> None:
        """Put small neighbours together, so that their number grows with the logarithm of the rows."""
        chunks = self.chunks
        while len(chunks) >= _FAN_IN:
            tail = chunks[-_FAN_IN:]
            rows = sum(map(len, tail))
            if rows > _MERGED_ROWS_MAX or len(tail[0]) >= _FAN_IN * len(tail[-1]):
                break
            chunks = (*chunks[:-_FAN_IN], merged(tail, types))
        self.chunks = chunks

    def _append(self, chunk: Chunk) -> None:
        self.chunks = (*self.chunks, chunk)
        self._rows += len(chunk)
        self._values_bytes += chunk.size_bytes


def _base(chunk: Chunk) -> int:
    return chunk.base
