"""Chunks: versions in memory, at first in the order of the log. Readers sort them by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow.compute as pc

from stelae.rows.key_order import Comparable
from stelae_store_columnar.plain_rows import PlainRows
from stelae_store_columnar.sorted_keys import SortedKeys
from stelae_store_columnar.sorted_rows import SortedRows
from stelae_store_columnar.sources import (
    INLINE_BYTES_MAX,
    INLINE_VERSIONS_MAX,
    CutPoint,
    MustBlock,
    PlainSlice,
    SourceSlice,
    StepSize,
)
from stelae_store_columnar.versions import STAMP_MAX, RowVersions, combined, same_as_next

GROUP_BYTES_MAX = 256 << 20  #: Far below the limit of the 32-bit offsets of one text array.
SORTED_BYTES_MAX = 16 << 20
"""The versions of larger chunks are not sorted as a whole: each reader copies those that it needs."""
_NEVER = -1  #: Used instead of a timestamp.
_CUT_POINTS = 8  #: Number of cut points that each chunk proposes for the rows of one step.


class _ChunkForm(NamedTuple):
    """The versions of a chunk, as far as they are sorted yet. The versions of each key are in log order."""

    rows: PlainRows
    in_key_order: SortedRows | None = None  #: ``None``: no reader has sorted their keys yet.
    order: Any = None  #: The places in ``rows`` in key order; ``None``: the versions are in key order.


class MemoryChunk:
    """Immutable versions, at first in log order.

    If ``ascending`` is true, their keys never descend, so log order is key order. The first reader sorts the keys on
    its own thread, and the first that reads a range the versions, too. If two readers do so at the same time, they get
    the same result."""

    __slots__ = ("_form", "_plain_from", "ascending", "first", "last", "size_bytes")

    def __init__(
        self, versions: RowVersions, bounds: tuple[Comparable, Comparable], ascending: bool, size_bytes: int
    ) -> None:
        self.first, self.last = bounds
        self.ascending = ascending
        self.size_bytes = size_bytes
        self._form = _ChunkForm(PlainRows(versions))  # Replaced as a whole, for other threads.
        self._plain_from: int | None = None

    def __len__(self) -> int:
        return len(self.versions)

    @property
    def versions(self) -> RowVersions:
        """The versions. Those of each key are in log order."""
        return self._form.rows.versions

    @property
    def row_bytes(self) -> float:
        """Average size of a version."""
        return self.size_bytes / len(self)

    def cut_points(self, low: Comparable | None, high: Comparable | None, step_size: StepSize) -> list[CutPoint]:
        """Return keys at which a step may end, each with the share of a step that the rows before it are."""
        if self._is_outside(low, high):
            return []
        keys = self.sorted_rows.keys
        start, end = keys.left(low, 0), keys.left(high, len(keys))
        weight = step_size.share(1, self.row_bytes)
        apart = max(1, int(1 / weight) // _CUT_POINTS)
        found = [(keys.at(position), apart * weight) for position in range(start + apart, end, apart)]
        if start < end:
            rest = end - start - apart * len(found)
            found.append((step_size.order.after(keys.at(end - 1)), rest * weight))
        return found

    def end_of_first(self, low: Comparable | None, high: Comparable | None, step_size: StepSize) -> Comparable | None:
        """Return the key before which one step of versions is, from the beginning of a range on.

        ``None``: the range has no more."""
        count = step_size.count(self.row_bytes)
        if len(self) <= count or self._is_outside(low, high):
            return None
        if not (step_size.may_block or self.is_soon_in_order):
            raise MustBlock
        return self.sorted_rows.keys.end_of_first(low, high, count, step_size.order)

    def begin_of_last(self, low: Comparable | None, high: Comparable | None, step_size: StepSize) -> Comparable | None:
        """Return the first key of the last step of versions of a range; ``None``: the range has no more than that."""
        count = step_size.count(self.row_bytes)
        if len(self) <= count or self._is_outside(low, high):
            return None
        if not (step_size.may_block or self.is_soon_in_order):
            raise MustBlock
        return self.sorted_rows.keys.begin_of_last(low, high, count)

    def slices(self, low: Comparable | None, high: Comparable | None) -> Sequence[SourceSlice]:
        """Return the versions of a key range as one slice, or nothing."""
        if self._is_outside(low, high):
            return ()
        keys = self.sorted_rows.keys
        start, end = keys.left(low, 0), keys.left(high, len(keys))
        return (ChunkSlice(self, start, end),) if start < end else ()

    def read(self, start: int, end: int, ids: Sequence[int]) -> RowVersions:
        """Return the versions from ``start`` to before ``end`` in key order."""
        form = self._in_order()
        own = form.rows.versions.select(ids)
        return own.slice(start, end - start) if form.order is None else own.take(form.order.slice(start, end - start))

    def read_plain(self, start: int, end: int) -> PlainSlice:
        """Return the versions from ``start`` to before ``end`` in key order, for a reader of single values."""
        form = self._in_order()
        places = range(start, end) if form.order is None else form.order.slice(start, end - start)
        return PlainSlice(self.sorted_rows.keys.array.slice(start, end - start), form.rows, places, STAMP_MAX)

    @property
    def is_soon_in_order(self) -> bool:
        """True if a reader of a range need not sort many versions any more."""
        form = self._form
        is_small = len(self) <= INLINE_VERSIONS_MAX and self.size_bytes <= INLINE_BYTES_MAX
        return self.ascending or (form.in_key_order is not None and form.order is None) or is_small

    @property
    def is_sorted(self) -> bool:
        """True if a reader need not sort the keys any more."""
        return self.ascending or self._form.in_key_order is not None

    def key_at(self, position: int) -> Comparable:
        """Return the key at a position in key order."""
        return self.sorted_rows.keys.at(position)

    def is_plain(self, at: int | None) -> bool:
        """Return true if each version is a visible row as of a time, without regard to other versions.

        Then each key has one version, none is partial or a deletion, and none is later than ``at``. The first reader
        computes this."""
        since = self._plain_from
        if since is None:
            whole, keys = self.versions, self.sorted_rows.keys.array
            hides = whole.deleted is not None or whole.partial is not None or pc.any(same_as_next(keys)).as_py()
            since = self._plain_from = _NEVER if hides else pc.max(whole.stamps).as_py()
        return since != _NEVER and (at is None or since <= at)

    def _is_outside(self, low: Comparable | None, high: Comparable | None) -> bool:
        """Return true if no version is in a range."""
        return bool((low is not None and self.last < low) or (high is not None and self.first >= high))

    @property
    def sorted_rows(self) -> SortedRows:
        """The versions by key. The first reader sorts the keys."""
        form = self._form
        found = form.in_key_order
        if found is None:
            keys, order = form.rows.versions.keys, None
            if not self.ascending:
                order = pc.sort_indices(keys)
                keys = keys.take(order)
            found = SortedRows(SortedKeys(keys), form.rows, order)
            self._form = _ChunkForm(form.rows, found, order)
        return found

    def _in_order(self) -> _ChunkForm:
        """Return the versions in key order, unless they are too large to be copied at once."""
        keys = self.sorted_rows.keys
        form = self._form
        if form.order is not None and self.size_bytes <= SORTED_BYTES_MAX:
            rows = PlainRows(form.rows.versions.take(form.order))
            form = self._form = _ChunkForm(rows, SortedRows(keys, rows))
        return form


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

    def plain(self, *, may_block: bool = True) -> PlainSlice:
        if not (may_block or self._chunk.is_soon_in_order):
            raise MustBlock
        return self._chunk.read_plain(self._start, self._end)


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
