"""The lookup of rows by key: in memory first, then in decoded row groups of blocks, from the newest version to older
ones.

The keys of one call go through the sources together, in key order, so that each source is asked once. A row group is
decoded whole and stays in the cache. It never changes, so nothing in the cache is ever out of date: a later version of
a key, or its deletion, is in a newer source, and that is looked into first."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TypeAlias

from stelae.rows.key_order import Comparable, KeyOrder
from stelae.spi.store import FoundBatch, FoundRows
from stelae_store_columnar import bloom
from stelae_store_columnar.begun_row import BegunRow, GivenColumns
from stelae_store_columnar.completed_rows import KEPT_FROM, CompletedRows
from stelae_store_columnar.decoded_cache import CacheShare
from stelae_store_columnar.found_keys import FewKeys, FoundKeys, ManyKeys
from stelae_store_columnar.levels import BlockLevel, RowGroup
from stelae_store_columnar.memory_chunks import MemoryChunk
from stelae_store_columnar.sorted_keys import TOGETHER_MIN
from stelae_store_columnar.sorted_rows import SortedRows
from stelae_store_columnar.sources import INLINE_VERSIONS_MAX
from stelae_store_columnar.state import ColumnarState

BATCH_KEYS_MIN = 128
"""From this number of keys on, the rows are returned as a batch."""

INLINE_KEY_VERSIONS_MAX = 256
"""The event loop looks at up to this many versions of a key. To complete a row of them takes 1 ms.

For all keys of a call, it looks at up to ``INLINE_VERSIONS_MAX`` versions one by one."""

_Wanted: TypeAlias = tuple[Comparable, int]
"""A key that no source has decided yet, and its position in the call. Lists of them are sorted."""


class PointLookup:
    """Looks up keys in one state, as of one time. Used for one call, by one thread.

    Args:
        state: the state to read.
        at: hybrid timestamp; ``None``: the newest rows.
        order: of the keys.
        cache: of the store, for rows of many partial versions.
        inline: whether keys for which a file must be read are left out.
    """

    def __init__(
        self, state: ColumnarState, at: int | None, order: KeyOrder, cache: CacheShare, *, inline: bool
    ) -> None:
        self._schema = state.schema
        self._adapter = state.adapter
        self._places = range(len(state.schema.layout.ids))
        self._given = GivenColumns(state.sets, state.schema.layout.ids)
        self._chunks = state.chunks[::-1]
        self._levels = state.levels.sources[::-1]
        self._at = at if at is not None and at < state.stamp else None
        self._until = state.stamp if self._at is None else self._at
        self._completed_rows = CompletedRows(cache, state)
        self._order = order
        self._inline = inline
        self._count = 0
        self._found: FoundKeys
        self._unread: list[int] = []
        self._begun: dict[int, BegunRow] = {}
        self._looked_at = 0  #: The number of versions that were looked at one by one.

    def find(self, keys: Sequence[bytes]) -> FoundRows | FoundBatch:
        """Return the row of each key. Called once."""
        if len(keys) < BATCH_KEYS_MIN:
            few = FewKeys(self._schema, self._adapter, len(keys))
            self._find(keys, few)
            return few.result(sorted(self._unread))
        different = [*dict.fromkeys(keys)]
        many = ManyKeys(self._schema, self._adapter, len(different))
        self._find(different, many)
        found = many.result(sorted(self._unread))
        return found if len(different) == len(keys) else _repeated(found, different, keys)

    def _find(self, keys: Sequence[bytes], found: FoundKeys) -> None:
        exact = self._order.exact
        self._count, self._found = len(keys), found
        wanted = sorted([(key, place) for place, one in enumerate(keys) if (key := exact(one)) is not None])
        for chunk in self._chunks:
            if wanted and wanted[0][0] <= chunk.last and chunk.first <= wanted[-1][0]:
                wanted = self._look_into_chunk(chunk, wanted)
        for level in self._levels:
            wanted = self._look_into_level(level, wanted)
        for position, begun in self._begun.items():  # No version before them has a value for the other columns.
            found.put(position, begun.row())

    def _look_into_chunk(self, chunk: MemoryChunk, wanted: list[_Wanted]) -> list[_Wanted]:
        """Look for keys in a chunk, and return those that are not decided."""
        start, end = bisect_left(wanted, (chunk.first,)), bisect_right(wanted, (chunk.last, self._count))
        if start == end:
            return wanted
        if self._inline and not chunk.is_sorted and len(chunk) > INLINE_VERSIONS_MAX:
            return wanted[:start] + self._leave(wanted[start:end]) + wanted[end:]
        return wanted[:start] + self._look_into(chunk.sorted_rows, wanted[start:end]) + wanted[end:]

    def _look_into_level(self, level: BlockLevel, wanted: list[_Wanted]) -> list[_Wanted]:
        """Look for keys in the row groups of a level, and return those that are not decided."""
        found: list[_Wanted] = []
        start = 0
        while start < len(wanted):
            row_group = level.row_group_of(wanted[start][0])
            if row_group is None:
                found.append(wanted[start])
                start += 1
                continue
            end = bisect_right(wanted, (row_group.index.last, self._count), start)
            found += self._look_into_row_group(row_group, wanted[start:end])
            start = end
        return found

    def _look_into_row_group(self, row_group: RowGroup, wanted: list[_Wanted]) -> list[_Wanted]:
        if self._at is not None and row_group.index.stamp_min > self._at:
            return wanted
        block, number = row_group.block, row_group.number
        decoded = block.cached_rows(number)
        if decoded is not None:
            return self._look_into(decoded, wanted)
        maybe = [one for one in wanted if may_hold(row_group, one[0])]
        if not maybe:
            return wanted
        found = self._leave(maybe) if self._inline else self._look_into(block.decoded_rows(number), maybe)
        return sorted({*wanted}.difference(maybe).union(found))

    def _leave(self, wanted: Sequence[_Wanted]) -> list[_Wanted]:
        """Leave keys to a call that may read files. Returns that none of them need be looked for any more."""
        for _, position in wanted:
            self._unread.append(position)
            self._begun.pop(position, None)
        return []

    def _look_into(self, source: SortedRows, wanted: Sequence[_Wanted]) -> list[_Wanted]:
        """Look for keys in the versions of a source, and return those that are not decided."""
        stamps, deleted, partial = source.rows.marks
        all_whole, at = deleted is None and partial is None, self._at
        undecided: list[_Wanted] = []
        places: list[int] = []
        positions: list[int] = []
        keys = source.keys
        lasts = keys.last_of_each([key for key, _ in wanted]) if len(wanted) >= TOGETHER_MIN else None
        for number, one in enumerate(wanted):
            key, position = one
            last = keys.last(key) if lasts is None else lasts[number]
            if last < 0:
                undecided.append(one)
                continue
            if all_whole and position not in self._begun:
                place = source.place(last)
                if at is None or stamps.at(place) <= at:
                    places.append(place)
                    positions.append(position)
                    continue
            if not self._decides(source, key, last, position):
                undecided.append(one)
        if places:
            self._found.take(source.rows, places, positions)
        return undecided

    def _decides(self, source: SortedRows, key: Comparable, last: int, position: int) -> bool:
        """Look at the versions of a key in a source, newest first. Return whether its row is decided, or left."""
        stamps, deleted, partial = source.rows.marks
        columns, at = source.rows.columns(self._adapter), self._at
        begun = self._begun.get(position) or BegunRow(self._places)
        for place in source.newest_first(key, last):
            begun.looked_at += 1
            self._looked_at += 1
            if self._inline and (begun.looked_at > INLINE_KEY_VERSIONS_MAX or self._looked_at > INLINE_VERSIONS_MAX):
                self._leave([(key, position)])
                return True
            stamp = stamps.at(place)
            if at is not None and stamp > at:
                continue
            if deleted is not None and deleted.at(place):
                break
            if begun.count:
                known = begun.known(self._completed_rows, key, self._until)
                if known is not None and stamp < known.stamp:
                    begun.fill(known.row)
                    break
            number = 0 if partial is None else partial.at(place)
            if begun.take(columns, place, stamp, self._given.of(number)):
                break
        else:
            self._begun[position] = begun
            return False
        self._begun.pop(position, None)
        row = begun.row()
        self._found.put(position, row)
        if row is not None and begun.count >= KEPT_FROM:
            self._completed_rows.put(key, begun.stamp, row)
        return True


def _repeated(
    found: FoundRows | FoundBatch, different: Sequence[bytes], keys: Sequence[bytes]
) -> FoundRows | FoundBatch:
    """Return what was found for different keys for keys of which some are the same."""
    place_of = {key: place for place, key in enumerate(different)}
    places = [place_of[key] for key in keys]
    left = {*found.unread}
    unread = [number for number, place in enumerate(places) if place in left]
    if isinstance(found, FoundRows):
        return FoundRows(found.schema, [found.rows[place] for place in places], unread)
    return FoundBatch(found.schema, found.rows, [found.positions[place] for place in places], unread)


def may_hold(row_group: RowGroup, key: Comparable) -> bool:
    """Return false if a row group certainly has no version of a key."""
    return bloom.may_hold(row_group.index.bloom, key)
