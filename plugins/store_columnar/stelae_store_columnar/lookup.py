"""Finding rows by key for the applying thread: which keys have a row now. Values are never read for that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stelae.rows.key_order import Comparable
from stelae_store_columnar import bloom
from stelae_store_columnar.levels import Level, Levels, Piece
from stelae_store_columnar.memory import MemoryPart

_TOGETHER_MIN = 256  #: From here on, keys of one row group are looked up by Arrow at once.


class Lookup:
    """Keys as of now, in memory and in blocks."""

    def __init__(self, memory: MemoryPart, levels: Levels) -> None:
        self._memory = memory
        self._levels = levels

    def is_gap(self, first: Comparable, last: Comparable) -> bool:
        """Whether certainly no row, nor a deletion, has a key from ``first`` to ``last``."""
        return self._memory.newest.is_gap(first, last) and not self._levels.overlaps(first, last)

    def bottom(self, first: Comparable, last: Comparable) -> bool:
        """Whether no block has a version of such a key."""
        return not self._levels.overlaps(first, last)

    def find(self, keys: Sequence[Comparable]) -> list[bool]:
        """Say of each key whether it has a row."""
        found = self._memory.newest.find(keys)
        open_places = [place for place, live in enumerate(found) if live is None]
        for level in self._levels.sources[::-1]:
            if open_places:
                open_places = _look_into(level, keys, open_places, found)
        return [live is True for live in found]


def _look_into(level: Level, keys: Sequence[Comparable], places: Sequence[int], found: list[bool | None]) -> list[int]:
    """Decide what a level knows of the keys at some places; return the places that it does not."""
    left: list[int] = []
    by_piece: dict[Piece, list[int]] = {}
    for place in places:
        piece = level.piece_of(keys[place])
        if piece is None:
            left.append(place)
        else:
            by_piece.setdefault(piece, []).append(place)
    for piece, mine in by_piece.items():
        left += _look_into_piece(piece, keys, mine, found)
    return left


def _look_into_piece(
    piece: Piece, keys: Sequence[Comparable], places: Sequence[int], found: list[bool | None]
) -> list[int]:
    block, number = piece.block, piece.number
    left: list[int] = []
    if not block.keys_cached(number):
        maybe = [place for place in places if bloom.may_hold(piece.index.bloom, keys[place])]
        left = sorted({*places}.difference(maybe))
        places = maybe
    if not places:
        return left
    here = block.keys(number)
    if len(places) < _TOGETHER_MIN:
        rows = [here.find(keys[place]) for place in places]
    else:
        wanted = pa.array([keys[place] for place in places], here.array.type)
        rows = pc.fill_null(pc.index_in(wanted, value_set=here.array), -1).to_pylist()
    for place, row in zip(places, rows, strict=True):
        if row < 0:
            left.append(place)
        else:
            gone = piece.index.deletions and block.is_deletion(number, _last_version(here.array, row, piece))
            found[place] = not gone
    return left


def _last_version(keys: Any, row: int, piece: Piece) -> int:
    """Versions of one key stand oldest first."""
    if piece.index.unique:
        return row
    while row + 1 < len(keys) and keys[row + 1] == keys[row]:
        row += 1
    return row
