"""The lookup of rows by key: in memory first, then in decoded row groups of blocks, from the newest version to older
ones.

A row group is decoded whole and stays in the cache. It never changes, so nothing in the cache is ever out of date: a
later version of a key, or its deletion, is in a newer source, and that is looked into first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from stelae.rows.key_order import Comparable, KeyOrder
from stelae.spi.store import FoundRows
from stelae_store_columnar import bloom
from stelae_store_columnar.block import DecodedRows
from stelae_store_columnar.levels import BlockLevel, RowGroup
from stelae_store_columnar.memory_chunks import MemoryChunk
from stelae_store_columnar.plain_rows import PlainRows, Row
from stelae_store_columnar.sources import INLINE_VERSIONS_MAX, MustBlock
from stelae_store_columnar.state import ColumnarState

INLINE_KEY_VERSIONS_MAX = 256
"""The event loop looks at up to this many versions of a key. To complete a row of them takes 1 ms."""


class _Whole(NamedTuple):
    """A version with all columns."""

    rows: PlainRows
    place: int


class _WholeRows(NamedTuple):
    """Versions of one source with all columns, and the positions of their keys."""

    rows: PlainRows
    places: list[int]
    positions: list[int]


class PointLookup:
    """Looks up keys in one state, as of one time. Used for one call, by one thread.

    Args:
        state: the state to read.
        at: hybrid timestamp; ``None``: the newest rows.
        order: of the keys.
        inline: whether keys for which a file must be read are left out.
    """

    def __init__(self, state: ColumnarState, at: int | None, order: KeyOrder, *, inline: bool) -> None:
        self._schema = state.schema
        self._adapter = state.adapter
        self._columns = state.adapter.plain_columns
        self._sets = state.sets
        self._chunks = state.chunks[::-1]
        self._levels = state.levels.sources[::-1]
        self._at = at if at is not None and at < state.stamp else None
        self._order = order
        self._inline = inline
        self._held: dict[BlockLevel, tuple[RowGroup, DecodedRows]] = {}

    def find(self, keys: Sequence[bytes]) -> FoundRows:
        """Return the row of each key."""
        exact = self._order.exact
        wanted = [(found, position) for position, key in enumerate(keys) if (found := exact(key)) is not None]
        if not self._inline:
            wanted.sort()  # Each row group is decoded once then, also if the cache is too small for all of them.
        rows: list[Row | None] = [None] * len(keys)
        unread: list[int] = []
        whole: dict[PlainRows, _WholeRows] = {}
        for key, position in wanted:
            try:
                found = self._row(key)
            except MustBlock:
                unread.append(position)
                continue
            if isinstance(found, _Whole):
                group = whole.get(found.rows)
                if group is None:
                    group = whole[found.rows] = _WholeRows(found.rows, [], [])
                group.places.append(found.place)
                group.positions.append(position)
            else:
                rows[position] = found
        layout = self._schema.layout
        for group in whole.values():
            for position, row in zip(
                group.positions, group.rows.rows(group.places, self._adapter, layout), strict=True
            ):
                rows[position] = row
        return FoundRows(self._schema, rows, sorted(unread))

    def _row(self, key: Comparable) -> _Whole | Row | None:
        """Return the row of a key, or the place of its only version that counts, if that version has all columns."""
        partial: list[tuple[PlainRows, int]] = []
        for rows, place in self._seen(key):
            versions = rows.versions
            if versions.deleted is not None and versions.deleted[place].as_py():
                break
            if versions.partial is None or not versions.partial[place].as_py():
                if not partial:
                    return _Whole(rows, place)
                partial.append((rows, place))
                break
            partial.append((rows, place))
        return self._completed(partial) if partial else None

    def _completed(self, newest_first: Sequence[tuple[PlainRows, int]]) -> Row:
        """Return the row of partial versions. Each takes the columns that it lacks from the versions before it."""
        values: dict[int, Any] = {}
        for rows, place in newest_first:
            partial = rows.versions.partial
            number = 0 if partial is None else partial[place].as_py()
            given = self._sets.ids(number)
            for column, read in zip(self._columns, rows.readers(self._adapter), strict=True):
                if column.id not in values and (not number or column.id in given):
                    values[column.id] = read(place)
        return tuple([values.get(column.id) for column in self._columns])

    def _seen(self, key: Comparable) -> Iterator[tuple[PlainRows, int]]:
        """Yield the versions of a key as of the time, newest first, with their places."""
        for count, (rows, place) in enumerate(self._versions(key)):
            if self._inline and count >= INLINE_KEY_VERSIONS_MAX:
                raise MustBlock
            if self._at is None or rows.versions.stamps[place].as_py() <= self._at:
                yield rows, place

    def _versions(self, key: Comparable) -> Iterator[tuple[PlainRows, int]]:
        """Yield all versions of a key, except those of row groups that are later than the time."""
        for chunk in self._chunks:
            if chunk.first <= key <= chunk.last:
                rows, places = self._places(chunk, key)
                yield from ((rows, place) for place in places)
        for level in self._levels:
            row_group = level.row_group_of(key)
            if row_group is None or (self._at is not None and row_group.index.stamp_min > self._at):
                continue
            decoded = self._decoded(level, row_group, key)
            if decoded is not None:
                yield from ((decoded.plain, place) for place in reversed(decoded.keys.run(key)))

    def _places(self, chunk: MemoryChunk, key: Comparable) -> tuple[PlainRows, Iterator[int]]:
        if self._inline and not chunk.is_sorted and len(chunk) > INLINE_VERSIONS_MAX:
            raise MustBlock
        return chunk.newest_first(key)

    def _decoded(self, level: BlockLevel, row_group: RowGroup, key: Comparable) -> DecodedRows | None:
        """Return the decoded row group; ``None``: it has no version of the key."""
        held = self._held.get(level)
        if held is not None and held[0] is row_group:
            return held[1]
        block, number = row_group.block, row_group.number
        decoded = block.cached_rows(number)
        if decoded is None:
            if not may_hold(row_group, key):
                return None
            if self._inline:
                raise MustBlock
            decoded = block.decoded_rows(number)
        self._held[level] = (row_group, decoded)
        return decoded


def may_hold(row_group: RowGroup, key: Comparable) -> bool:
    """Return false if a row group certainly has no version of a key."""
    return bloom.may_hold(row_group.index.bloom, key)
