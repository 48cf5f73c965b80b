"""Chunks: versions in memory in the order of the log. The first reader sorts them by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow.compute as pc

from stelae.rows.key_order import Comparable
from stelae_store_columnar.plain_rows import PlainRows
from stelae_store_columnar.sorted_keys import SortedKeys
from stelae_store_columnar.sources import CutPoint, SourceSlice, StepSize
from stelae_store_columnar.versions import STAMP_MAX, RowVersions, combined, same_as_next

GROUP_BYTES_MAX = 256 << 20  #: Far below the limit of the 32-bit offsets of one text array.
_NEVER = -1  #: Used instead of a timestamp.
_CUT_POINTS = 8  #: Number of cut points that each chunk proposes for the rows of one step.


class MemoryChunk:
    """Immutable versions in log order.

    If ``ascending`` is true, their keys never descend, so log order is key order. The first reader sorts the versions,
    on its own thread. If two readers do so at the same time, they get the same result."""

    __slots__ = ("_keys", "_order", "_plain_from", "ascending", "first", "last", "plain", "size_bytes", "versions")

    def __init__(
        self, versions: RowVersions, bounds: tuple[Comparable, Comparable], ascending: bool, size_bytes: int
    ) -> None:
        self.versions = versions
        self.plain = PlainRows(versions)
        self.first, self.last = bounds
        self.ascending = ascending
        self.size_bytes = size_bytes
        self._order: Any = None
        self._keys: SortedKeys | None = None
        self._plain_from: int | None = None

    def __len__(self) -> int:
        return len(self.versions)

    @property
    def row_bytes(self) -> float:
        """Average size of a version."""
        return self.size_bytes / len(self)

    def cut_points(self, low: Comparable | None, high: Comparable | None, step_size: StepSize) -> list[CutPoint]:
        """Return keys at which a step may end, each with the share of a step that the rows before it are."""
        if (low is not None and self.last < low) or (high is not None and self.first >= high):
            return []
        keys = self._sorted()
        start, end = keys.left(low, 0), keys.left(high, len(keys))
        weight = step_size.share(1, self.row_bytes)
        apart = max(1, int(1 / weight) // _CUT_POINTS)
        found = [(keys.at(position), apart * weight) for position in range(start + apart, end, apart)]
        if start < end:
            rest = end - start - apart * len(found)
            found.append((step_size.order.after(keys.at(end - 1)), rest * weight))
        return found

    def slices(self, low: Comparable | None, high: Comparable | None) -> Sequence[SourceSlice]:
        """Return the versions of a key range as one slice, or nothing."""
        if (low is not None and self.last < low) or (high is not None and self.first >= high):
            return ()
        keys = self._sorted()
        start, end = keys.left(low, 0), keys.left(high, len(keys))
        return (ChunkSlice(self, start, end),) if start < end else ()

    def read(self, start: int, end: int, ids: Sequence[int]) -> RowVersions:
        """Return the versions from ``start`` to before ``end`` in key order."""
        self._sorted()
        own = self.versions.select(ids)
        return own.slice(start, end - start) if self._order is None else own.take(self._order.slice(start, end - start))

    @property
    def is_sorted(self) -> bool:
        """True if a reader need not sort the versions any more."""
        return self.ascending or self._keys is not None

    def newest_first(self, key: Comparable) -> Iterator[int]:
        """Return the places of the versions of a key in ``versions``, from the newest to the oldest."""
        positions = reversed(self._sorted().run(key))
        return positions if self._order is None else (self._order[position].as_py() for position in positions)

    def key_at(self, position: int) -> Comparable:
        """Return the key at a position in key order."""
        return self._sorted().at(position)

    def is_plain(self, at: int | None) -> bool:
        """Return true if each version is a visible row as of a time, without regard to other versions.

        Then each key has one version, none is partial or a deletion, and none is later than ``at``. The first reader
        computes this."""
        since = self._plain_from
        if since is None:
            whole, keys = self.versions, self._sorted().array
            hides = whole.deleted is not None or whole.partial is not None or pc.any(same_as_next(keys)).as_py()
            since = self._plain_from = _NEVER if hides else pc.max(whole.stamps).as_py()
        return since != _NEVER and (at is None or since <= at)

    def _sorted(self) -> SortedKeys:
        keys = self._keys
        if keys is None:
            if self.ascending:
                keys = SortedKeys(self.versions.keys)
            else:
                self._order = pc.sort_indices(self.versions.keys)
                keys = SortedKeys(self.versions.keys.take(self._order))
            self._keys = keys  # Set last, so that a thread that sees the keys also sees the order.
        return keys


class ChunkSlice(SourceSlice):
    """The versions of a chunk from ``start`` to before ``end`` in key order."""

    __slots__ = ("_chunk", "_end", "_start")
    stamp_min = 0
    stamp_max = STAMP_MAX

    def __init__(self, chunk: MemoryChunk, start: int, end: int) -> None:
        self._chunk, self._start, self._end = chunk, start, end

    @property
    def row_bytes(self) -> float:
        return self._chunk.row_bytes

    @property
    def size_bytes(self) -> int:
        return int(self._chunk.row_bytes * (self._end - self._start))

    @property
    def bounds(self) -> tuple[Comparable, Comparable]:
        return self._chunk.key_at(self._start), self._chunk.key_at(self._end - 1)

    def is_plain(self, at: int | None) -> bool:
        return self._chunk.is_plain(at)

    def read(self, ids: Sequence[int], *, use_cache: bool) -> RowVersions:
        return self._chunk.read(self._start, self._end, ids)


def chunks_overlap(chunks: Sequence[MemoryChunk]) -> bool:
    """Return true if the key ranges of two chunks overlap, or a chunk is not in key order."""
    ordered = sorted(chunks, key=_first)
    meets = any(one.last >= other.first for one, other in pairwise(ordered))
    return meets or not all(chunk.ascending for chunk in chunks)


def grouped_chunks(chunks: Sequence[MemoryChunk], types: Mapping[int, Any]) -> list[MemoryChunk]:
    """Merge neighbouring chunks up to a maximum size.

    The cost of reading overlapping chunks grows with their number."""
    found: list[MemoryChunk] = []
    waiting: list[MemoryChunk] = []
    for chunk in chunks:
        if waiting and sum(one.size_bytes for one in waiting) + chunk.size_bytes > GROUP_BYTES_MAX:
            found.append(merged_chunk(waiting, types))
            waiting = []
        waiting.append(chunk)
    return [*found, merged_chunk(waiting, types)]


def merged_chunk(chunks: Sequence[MemoryChunk], types: Mapping[int, Any]) -> MemoryChunk:
    """Merge neighbouring chunks into one, in log order."""
    ascending = all(chunk.ascending for chunk in chunks)
    ascending = ascending and all(a.last < b.first for a, b in pairwise(chunks))
    return MemoryChunk(
        combined([chunk.versions for chunk in chunks], types),
        (min(chunk.first for chunk in chunks), max(chunk.last for chunk in chunks)),
        ascending,
        sum(chunk.size_bytes for chunk in chunks),
    )


def _first(chunk: MemoryChunk) -> Comparable:
    return chunk.first
