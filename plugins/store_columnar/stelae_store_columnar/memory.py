"""The part in memory: what was applied since the last flush."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from operator import le
from typing import Any

from stelae.rows.key_order import Comparable
from stelae_store_columnar.chunks import Chunk, merged, overlap
from stelae_store_columnar.newest import NewestVersions
from stelae_store_columnar.resolving import ColumnSets
from stelae_store_columnar.versions import Versions

VERSION_BYTES = 24  #: Timestamp, key and marks of a version, besides its values.
_MERGED_ROWS_MAX = 8192  #: Chunks of so many rows are left as they are,
_MERGED_ROWS_LIMIT = 65_536  #: and of so many if they overlap, which makes their number felt by readers.
_FAN_IN = 4  #: So many neighbours of about one size become one chunk.
_TAIL = 32  #: More chunks than one call of ``settle`` puts together.


class MemoryPart:
    """Versions that are not flushed, in chunks. Written by the applying thread; ``chunks`` is replaced whole, so that
    what a reader got of it stays as it is."""

    def __init__(self) -> None:
        self.chunks: tuple[Chunk, ...] = ()
        self.newest = NewestVersions()
        self.sets = ColumnSets()
        self._rows = 0
        self._values_bytes = 0
        self._superseded: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return self._rows

    @property
    def size_bytes(self) -> int:
        """Memory held, about."""
        return self._values_bytes + VERSION_BYTES * self._rows + self.newest.size_bytes

    @property
    def values_bytes(self) -> int:
        """Memory that values hold, about."""
        return self._values_bytes

    def append_run(self, versions: Versions, bounds: tuple[Comparable, Comparable], size_bytes: int) -> None:
        """Take rows with strictly rising keys in a gap; none is a deletion."""
        self.newest.add_run(*bounds, versions.keys)
        self._append(Chunk(versions, bounds, True, size_bytes))

    def append(
        self, versions: Versions, keys: Sequence[Comparable], size_bytes: int, stamp: int, *, gone: bool, bottom: bool
    ) -> None:
        """Take versions whose ``keys`` are here as Python, too: all deletions, or none.

        ``stamp`` is the highest of their timestamps; at ``bottom`` a deletion has nothing to hide in blocks."""
        bounds = min(keys), max(keys)
        superseded = self.newest.put(keys, *bounds, not gone)
        superseded += len(keys) if gone and bottom else 0
        if superseded:
            self._superseded.append((stamp, superseded))
        self._append(Chunk(versions, bounds, all(map(le, keys, keys[1:])), size_bytes))

    def garbage(self, floor: int) -> int:
        """Return how many versions no read at or above ``floor`` sees, about."""
        return sum(count for stamp, count in self._superseded if stamp <= floor)

    def without_garbage(self, kept: Versions, floor: int) -> MemoryPart:
        """Return what is left when only some versions, sorted and none of them partial, are kept."""
        rest = MemoryPart()
        if not len(kept):
            return rest
        keys = kept.keys.to_pylist()
        live = [True] * len(keys) if kept.deleted is None else [not gone for gone in kept.deleted.to_pylist()]
        # Of several versions of a key the last is the newest.
        newest = dict(zip(keys, live, strict=True))
        for kind in (True, False):
            chosen = [key for key, alive in newest.items() if alive is kind]
            if chosen:
                rest.newest.put(chosen, chosen[0], chosen[-1], kind)
        rest._superseded.extend(found for found in self._superseded if found[0] > floor)
        rest._append(Chunk(kept, (keys[0], keys[-1]), True, self._values_bytes * len(keys) // self._rows))
        return rest

    def settles_within(self, more: int, rows_max: int) -> bool:
        """Whether ``settle``, after a chunk of ``more`` rows, puts at most ``rows_max`` rows together at a time."""
        sizes = [*map(len, self.chunks[-_TAIL:]), more]
        while len(sizes) >= _FAN_IN and sizes[-_FAN_IN] < _FAN_IN * sizes[-1]:
            rows = sum(sizes[-_FAN_IN:])
            if rows > rows_max:
                return rows > _MERGED_ROWS_LIMIT
            sizes[-_FAN_IN:] = [rows]
        return True

    def settle(self, types: Mapping[int, Any]) -> None:
        """Put small neighbours together, so that their number grows with the logarithm of the rows."""
        chunks = self.chunks
        while len(chunks) >= _FAN_IN:
            tail = chunks[-_FAN_IN:]
            rows = sum(map(len, tail))
            if rows > _MERGED_ROWS_LIMIT or len(tail[0]) >= _FAN_IN * len(tail[-1]):
                break
            if rows > _MERGED_ROWS_MAX and not overlap(tail):
                break
            chunks = (*chunks[:-_FAN_IN], merged(tail, types))
        self.chunks = chunks

    def _append(self, chunk: Chunk) -> None:
        self.chunks = (*self.chunks, chunk)
        self._rows += len(chunk)
        self._values_bytes += chunk.size_bytes
