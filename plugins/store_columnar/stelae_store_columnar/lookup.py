"""Finding rows by key for the applying thread: which keys have a row now, and what is in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import pyarrow as pa

from stelae.rows.key_order import Comparable
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout
from stelae_store_columnar import bloom
from stelae_store_columnar.fitting import Fitting, default_of
from stelae_store_columnar.levels import Levels, Piece
from stelae_store_columnar.memory import MemoryPart
from stelae_store_columnar.newest import GONE

InBlock: TypeAlias = tuple[Piece, int]
Place: TypeAlias = int | InBlock
"""Where a row is: its number in memory, or a row group and the place within it."""


class Lookup:
    """Rows as of now, in memory and in blocks."""

    def __init__(self, memory: MemoryPart, levels: Levels) -> None:
        self._memory = memory
        self._levels = levels

    def is_gap(self, first: Comparable, last: Comparable) -> bool:
        """Whether certainly no row, nor a deletion, has a key from ``first`` to ``last``."""
        return self._memory.newest.is_gap(first, last) and not self._levels.overlaps(first, last)

    def bottom(self, first: Comparable, last: Comparable) -> bool:
        """Whether no block has a version of such a key."""
        return not self._levels.overlaps(first, last)

    def find(self, keys: Sequence[Comparable]) -> list[Place | None]:
        """Return where the row of each key is; ``None``: it has none."""
        found: list[Place | None] = [*self._memory.newest.find(keys)]
        sources = self._levels.sources[::-1]
        for place, number in enumerate(found):
            if number is None and sources:
                found[place] = self._in_blocks(keys[place])
            elif number == GONE:
                found[place] = None
        return found

    def _in_blocks(self, key: Comparable) -> InBlock | None:
        """The newest version of a key, unless it is a deletion. Levels are asked newest first."""
        for level in self._levels.sources[::-1]:
            piece = level.piece_of(key)
            if piece is None:
                continue
            block, number = piece.block, piece.number
            if not block.keys_cached(number) and not bloom.may_hold(piece.index.bloom, key):
                continue
            keys = block.keys(number)
            row = keys.left(key, 0)
            if row < len(keys) and keys.at(row) == key:
                row = _last_version(keys, row, key, piece)
                if piece.index.deletions and block.is_deletion(number, row):
                    return None
                return piece, row
        return None

    def values(self, places: Sequence[Place | None], layout: Layout, fitting: Fitting) -> RowBatch:
        """Return the columns of a layout of rows at some places, in that order; defaults where there is no row."""
        tagged = sorted(range(len(places)), key=lambda number: _sort_key(self._memory, places[number]))
        batches: list[Any] = []
        for _, run in groupby(tagged, key=lambda number: _sort_key(self._memory, places[number])[:2]):
            numbers = [*run]
            batches.append(self._read([places[number] for number in numbers], layout, fitting).arrow)
        back = [0] * len(places)
        for position, number in enumerate(tagged):
            back[number] = position
        whole = batches[0] if len(batches) == 1 else _stacked(batches, layout)
        return RowBatch(layout, whole if back == [*range(len(back))] else whole.take(pa.array(back, pa.int64())))

    def _read(self, places: Sequence[Any], layout: Layout, fitting: Fitting) -> RowBatch:
        """Rows that are all in one chunk, all in one row group, or all nowhere."""
        first = places[0]
        if first is None:
            arrays = [pa.repeat(default_of(column), len(places)) for column in layout.columns]
            return RowBatch.from_arrays(layout, arrays)
        if isinstance(first, int):
            chunk = self._memory.chunks[self._memory.locate(first)[0]]
            versions, rows = chunk.versions.select(layout.ids), [number - chunk.base for number in places]
        else:
            piece = first[0]
            versions = piece.block.cached_versions(piece.number, layout.ids)
            rows = [row for _, row in places]
        return fitting.batch(layout, versions.take(pa.array(rows, pa.int64())))


def _sort_key(memory: MemoryPart, place: Place | None) -> tuple[int, int, int]:
    """Rows of one chunk or row group next to each other."""
    if place is None:
        return (0, 0, 0)
    if isinstance(place, int):
        return (1, *memory.locate(place))
    return (2, id(place[0]), place[1])


def _last_version(keys: Any, row: int, key: Comparable, piece: Piece) -> int:
    """Versions of one key stand oldest first."""
    while not piece.index.unique and row + 1 < len(keys) and keys.at(row + 1) == key:
        row += 1
    return row


def _stacked(batches: Iterable[Any], layout: Layout) -> Any:
    return pa.Table.from_batches(batches, schema=layout.arrow).combine_chunks().to_batches()[0]
