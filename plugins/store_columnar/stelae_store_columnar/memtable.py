"""The memtable: the versions that were applied since the last flush."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from operator import le
from typing import Any

from stelae.rows.key_order import Comparable
from stelae_store_columnar.memory_chunks import MemoryChunk, chunks_overlap, merged_chunk
from stelae_store_columnar.newest_versions import NewestVersions
from stelae_store_columnar.version_resolver import ColumnSets
from stelae_store_columnar.versions import RowVersions

VERSION_BYTES = 24  #: Memory of a version besides its values: timestamp, key and marks.
_MERGED_ROWS_MAX = 8192  #: Most rows of a chunk that is made by merging chunks that do not overlap.
_MERGED_ROWS_LIMIT = 65_536  #: The same for overlapping chunks, whose number makes reads slower.
_FAN_IN = 4  #: Number of neighbouring chunks of about the same size that are merged_chunk into one.
_TAIL = 32  #: More chunks than one call of ``merge_small_chunks`` merges.


class ColumnarMemtable:
    """The versions that are not flushed, in chunks.

    Only the applying thread changes it. It replaces ``chunks`` as a whole, so the tuple that a reader has stays
    valid."""

    def __init__(self) -> None:
        self.chunks: tuple[MemoryChunk, ...] = ()
        self.newest = NewestVersions()
        self.sets = ColumnSets()
        self._rows = 0
        self._values_bytes = 0
        self._superseded: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return self._rows

    @property
    def size_bytes(self) -> int:
        """Approximate memory."""
        return self._values_bytes + VERSION_BYTES * self._rows + self.newest.size_bytes

    @property
    def values_bytes(self) -> int:
        """Approximate memory of the values."""
        return self._values_bytes

    def append_ascending(self, versions: RowVersions, bounds: tuple[Comparable, Comparable], size_bytes: int) -> None:
        """Add rows whose keys strictly ascend and lie between all other keys. None is a deletion."""
        self.newest.add_range(*bounds, versions.keys)
        self._append(MemoryChunk(versions, bounds, True, size_bytes))

    def append(
        self,
        versions: RowVersions,
        keys: Sequence[Comparable],
        size_bytes: int,
        stamp: int,
        *,
        deleted: bool,
        bottom: bool,
    ) -> None:
        """Add versions. Either all of them are deletions (``deleted``), or none is.

        ``keys`` are their keys as Python values. ``stamp`` is the highest of their timestamps. ``bottom`` is true if no
        block has a version of these keys, so that a deletion hides nothing in a block."""
        bounds = min(keys), max(keys)
        superseded = self.newest.put(keys, *bounds, not deleted)
        superseded += len(keys) if deleted and bottom else 0
        if superseded:
            self._superseded.append((stamp, superseded))
        self._append(MemoryChunk(versions, bounds, all(map(le, keys, keys[1:])), size_bytes))

    def garbage(self, floor: int) -> int:
        """Return the approximate number of versions that no read at or above ``floor`` sees."""
        return sum(count for stamp, count in self._superseded if stamp <= floor)

    def without_garbage(self, kept: RowVersions, floor: int) -> ColumnarMemtable:
        """Return a memtable with only the versions ``kept``. They are sorted, and none is partial."""
        rest = ColumnarMemtable()
        if not len(kept):
            return rest
        keys = kept.keys.to_pylist()
        live = [True] * len(keys) if kept.deleted is None else [not deleted for deleted in kept.deleted.to_pylist()]
        # Of several versions of a key the last is the newest.
        newest = dict(zip(keys, live, strict=True))
        for kind in (True, False):
            chosen = [key for key, alive in newest.items() if alive is kind]
            if chosen:
                rest.newest.put(chosen, chosen[0], chosen[-1], kind)
        rest._superseded.extend(found for found in self._superseded if found[0] > floor)
        rest._append(MemoryChunk(kept, (keys[0], keys[-1]), True, self._values_bytes * len(keys) // self._rows))
        return rest

    def merges_within(self, more: int, rows_max: int) -> bool:
        """Return true if no merge has more than ``rows_max`` rows when a chunk of ``more`` rows is added."""
        sizes = [*map(len, self.chunks[-_TAIL:]), more]
        while len(sizes) >= _FAN_IN and sizes[-_FAN_IN] < _FAN_IN * sizes[-1]:
            rows = sum(sizes[-_FAN_IN:])
            if rows > rows_max:
                return rows > _MERGED_ROWS_LIMIT
            sizes[-_FAN_IN:] = [rows]
        return True

    def merge_small_chunks(self, types: Mapping[int, Any]) -> None:
        """Merge small neighbouring chunks, so that their number grows with the logarithm of the rows."""
        chunks = self.chunks
        while len(chunks) >= _FAN_IN:
            tail = chunks[-_FAN_IN:]
            rows = sum(map(len, tail))
            if rows > _MERGED_ROWS_LIMIT or len(tail[0]) >= _FAN_IN * len(tail[-1]):
                break
            if rows > _MERGED_ROWS_MAX and not chunks_overlap(tail):
                break
            chunks = (*chunks[:-_FAN_IN], merged_chunk(tail, types))
        self.chunks = chunks

    def _append(self, chunk: MemoryChunk) -> None:
        self.chunks = (*self.chunks, chunk)
        self._rows += len(chunk)
        self._values_bytes += chunk.size_bytes
