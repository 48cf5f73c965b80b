"""Levels: the blocks of a store, and which of them are older than which.

The blocks of *level 0* come from flushes. They are ordered from oldest to newest and may overlap. The blocks of
*level 1* do not overlap each other. For each key, they are older than all blocks of level 0. A block may count only
from a key ``start`` on: its rows below that were merged into other blocks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from stelae.rows.key_order import Comparable
from stelae_store_columnar.block import ColumnarBlock
from stelae_store_columnar.sorted_keys import SortedKeys
from stelae_store_columnar.sorted_rows import SortedRows
from stelae_store_columnar.sources import CutPoint, MustBlock, PlainSlice, SourceSlice, StepSize
from stelae_store_columnar.versions import RowVersions


class RowGroup:
    """One row group of a block, without the keys below the first key that the block still has."""

    __slots__ = ("block", "clipped", "first", "index", "number")

    def __init__(self, block: ColumnarBlock, number: int, start: Comparable | None) -> None:
        self.block = block
        self.number = number
        self.index = block.index.row_groups[number]
        self.clipped = start is not None and start > self.index.first
        self.first: Comparable = start if self.clipped else self.index.first

    def begin(self, low: Comparable | None) -> Comparable | None:
        """Return the first key of the versions that are still in use and not below ``low``; ``None``: all of them."""
        return low if low is not None and low > self.first else self.first if self.clipped else None

    @property
    def row_bytes(self) -> float:
        """Average size of a version."""
        return self.index.size_bytes / self.index.rows

    def decoded(self, *, may_block: bool = True) -> SortedRows:
        """Return the whole row group, through the cache. ``MustBlock``: it is not there, and this may not block."""
        found = self.block.cached_rows(self.number)
        if found is None:
            if not may_block:
                raise MustBlock
            found = self.block.decoded_rows(self.number)
        return found


class LiveBlock:
    """A block of a level. Its keys below ``start`` are not in use any more; ``None``: all are in use."""

    __slots__ = ("block", "first", "row_groups", "start")

    def __init__(self, block: ColumnarBlock, start: Comparable | None = None) -> None:
        self.block = block
        self.start = start
        found = [RowGroup(block, number, start) for number in range(len(block.index.row_groups))]
        self.row_groups = [row_group for row_group in found if start is None or row_group.index.last >= start]
        self.first: Comparable = self.row_groups[0].first

    @property
    def last(self) -> Comparable:
        """The largest key."""
        return self.block.index.last

    @property
    def stamp_max(self) -> int:
        """The highest timestamp of its versions."""
        return max(row_group.index.stamp_max for row_group in self.row_groups)

    @property
    def rows(self) -> int:
        """Approximate number of versions that count."""
        return sum(row_group.index.rows for row_group in self.row_groups)

    def overlaps(self, first: Comparable, last: Comparable) -> bool:
        """Return true if a key from ``first`` to ``last`` may be in it."""
        return bool(self.first <= last and first <= self.last)


class BlockLevel:
    """Row groups in key order that do not overlap. A level is a ``VersionSource``."""

    def __init__(self, blocks: Sequence[LiveBlock]) -> None:
        self.blocks = tuple(sorted(blocks, key=_first))
        self.row_groups = [row_group for live in self.blocks for row_group in live.row_groups]
        self._firsts = [row_group.first for row_group in self.row_groups]
        self._lasts = [row_group.index.last for row_group in self.row_groups]

    def between(self, low: Comparable | None, high: Comparable | None) -> Sequence[RowGroup]:
        """Return the row groups that may hold keys of a range."""
        start = 0 if low is None else bisect_left(self._lasts, low)
        end = len(self.row_groups) if high is None else bisect_left(self._firsts, high)
        return self.row_groups[start:end]

    def row_group_of(self, key: Comparable) -> RowGroup | None:
        """Return the row group whose key range contains a key, if there is one."""
        position = bisect_left(self._lasts, key)
        return self.row_groups[position] if position < len(self.row_groups) and self._firsts[position] <= key else None

    def overlaps(self, first: Comparable, last: Comparable) -> bool:
        """Return true if a key from ``first`` to ``last`` may be in it."""
        position = bisect_left(self._lasts, first)
        return position < len(self.row_groups) and bool(self._firsts[position] <= last)

    def cut_points(self, low: Comparable | None, high: Comparable | None, step_size: StepSize) -> list[CutPoint]:
        """Return the ends of the row groups."""
        found = [row_group.index for row_group in self.between(low, high)]
        return [(step_size.order.after(index.last), step_size.share(index.rows, index.size_bytes)) for index in found]

    def end_of_first(self, low: Comparable | None, high: Comparable | None, step_size: StepSize) -> Comparable | None:
        """Return the key before which one step of versions is, from the beginning of a range on, or a row group ends.

        ``None``: the range has no more. Decodes a row group."""
        found = self.between(low, high)
        if not found:
            return None
        first, goes_on = found[0], len(found) > 1
        count = step_size.count(first.row_bytes)
        key = first.decoded(may_block=step_size.may_block).keys.end_of_first(
            first.begin(low), high, count, step_size.order
        )
        return key if key is not None else found[1].first if goes_on else None

    def begin_of_last(self, low: Comparable | None, high: Comparable | None, step_size: StepSize) -> Comparable | None:
        """Return the first key of the last step of versions of a range, or the first key of its last row group.

        ``None``: the range has no more. Decodes a row group."""
        found = self.between(low, high)
        if not found:
            return None
        last, goes_on = found[-1], len(found) > 1
        key = last.decoded(may_block=step_size.may_block).keys.begin_of_last(
            last.begin(low), high, step_size.count(last.row_bytes)
        )
        return key if key is not None else last.first if goes_on else None

    def slices(self, low: Comparable | None, high: Comparable | None) -> Sequence[SourceSlice]:
        """Return the row groups in a range. The first and the last one are cut to the range."""
        return [RowGroupSlice(row_group, low, high) for row_group in self.between(low, high)]


class Levels:
    """All blocks of a store at one moment. Never changed."""

    def __init__(self, level1: Sequence[LiveBlock] = (), level0: Sequence[LiveBlock] = ()) -> None:
        self.level1 = BlockLevel(level1)
        self.level0 = tuple(BlockLevel((live,)) for live in level0)

    @property
    def sources(self) -> tuple[BlockLevel, ...]:
        """The levels, oldest first."""
        return (self.level1, *self.level0) if self.level1.row_groups else self.level0

    @property
    def blocks(self) -> list[LiveBlock]:
        """All blocks."""
        return [live for level in (self.level1, *self.level0) for live in level.blocks]

    def overlaps(self, first: Comparable, last: Comparable) -> bool:
        """Return true if a key from ``first`` to ``last`` may be in a block."""
        return any(level.overlaps(first, last) for level in self.sources)


class RowGroupSlice(SourceSlice):
    """A row group, or its rows in a key range."""

    __slots__ = ("_high", "_low", "_plain", "row_group", "whole")

    def __init__(self, row_group: RowGroup, low: Comparable | None, high: Comparable | None) -> None:
        self.row_group = row_group
        self._low = row_group.begin(low)
        self._high = None if high is None or high > row_group.index.last else high
        self.whole = self._low is None and self._high is None
        self._plain: PlainSlice | None = None

    @property
    def stamp_min(self) -> int:  # type: ignore[override]
        return self.row_group.index.stamp_min

    @property
    def stamp_max(self) -> int:  # type: ignore[override]
        return self.row_group.index.stamp_max

    @property
    def row_bytes(self) -> float:
        return self.row_group.row_bytes

    @property
    def size_bytes(self) -> int:
        return self.row_group.index.size_bytes

    @property
    def bounds(self) -> tuple[Comparable, Comparable]:
        return self.row_group.first, self.row_group.index.last

    def is_plain(self, at: int | None) -> bool:
        index = self.row_group.index
        seen = at is None or index.stamp_max <= at
        return index.unique and not index.deletions and seen

    def read(self, ids: Sequence[int], *, use_cache: bool) -> RowVersions:
        block, number = self.row_group.block, self.row_group.number
        # The next step needs the rest of the row group.
        use_cache = use_cache or not self.whole
        held = self._plain
        if held is not None:
            return held.rows.versions.select(ids).slice(held.places.start, len(held.places))
        decoded = block.cached_rows(number) if use_cache else None
        if decoded is not None:
            return self._cut(decoded.rows.versions.select(ids), decoded.keys)
        versions = block.cached_versions(number, ids) if use_cache else block.versions(number, ids)
        if self.whole:
            return versions
        return self._cut(versions, block.keys(number) if use_cache else SortedKeys(versions.keys))

    def plain(self, *, may_block: bool = True) -> PlainSlice:
        found = self._plain
        if found is None:
            decoded = self.row_group.decoded(may_block=may_block)
            places = self._places(decoded.keys)
            keys = decoded.keys.array.slice(places.start, len(places))
            found = self._plain = PlainSlice(keys, decoded.rows, places, self.stamp_max)
        return found

    def _cut(self, versions: RowVersions, keys: SortedKeys) -> RowVersions:
        """Return the versions of the whole row group that are in the range."""
        places = self._places(keys)
        return versions.slice(places.start, len(places))

    def _places(self, keys: SortedKeys) -> range:
        start = keys.left(self._low, 0)
        return range(start, max(start, keys.left(self._high, len(keys))))


def _first(live: LiveBlock) -> Comparable:
    return live.first
