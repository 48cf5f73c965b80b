"""The lookup of keys for the applying thread: which keys have a row now. It never reads values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stelae.rows.key_order import Comparable
from stelae_store_columnar import bloom
from stelae_store_columnar.levels import BlockLevel, Levels, RowGroup
from stelae_store_columnar.memtable import ColumnarMemtable

_TOGETHER_MIN = 256  #: From this number of keys in one row group on, Arrow looks them up in one call.


class ColumnarLookup:
    """Finds the rows that exist now, in memory and in blocks.

    Args:
        memory: the rows in memory.
        levels: the blocks.
        in_blocks: for some keys, whether the blocks have a row of them now.
    """

    def __init__(self, memory: ColumnarMemtable, levels: Levels, in_blocks: Mapping[Comparable, bool]) -> None:
        self._memory = memory
        self._levels = levels
        self._in_blocks = in_blocks

    def is_gap(self, first: Comparable, last: Comparable) -> bool:
        """Return true if certainly no version has a key from ``first`` to ``last``."""
        return self._memory.newest.is_gap(first, last) and not self._levels.overlaps(first, last)

    def is_absent_in_blocks(self, first: Comparable, last: Comparable) -> bool:
        """Return true if certainly no block has a version with a key from ``first`` to ``last``."""
        return not self._levels.overlaps(first, last)

    def find(self, keys: Sequence[Comparable]) -> list[bool]:
        """Return for each key whether it has a row."""
        found = self._memory.newest.find(keys)
        if self._in_blocks:
            found = [self._in_blocks.get(key) if live is None else live for key, live in zip(keys, found, strict=True)]
        open_positions = [position for position, live in enumerate(found) if live is None]
        for level in self._levels.sources[::-1]:
            if open_positions:
                open_positions = _look_up(level, keys, open_positions, found)
        return [live is True for live in found]


class _Seen(Enum):
    """What the cache, the key range and the Bloom filter of a row group say of a key."""

    ROW = auto()
    DELETION = auto()
    NO_VERSION = auto()
    UNREAD = auto()  #: Only a file can tell.


def cached_state(levels: Levels, key: Comparable) -> bool | None:
    """Return whether the blocks have a row of a key now, or ``None`` if only a file can tell. Never blocks."""
    for level in levels.sources[::-1]:
        row_group = level.row_group_of(key)
        seen = _Seen.NO_VERSION if row_group is None else _seen(row_group, key)
        if seen is _Seen.UNREAD:
            return None
        if seen is not _Seen.NO_VERSION:
            return seen is _Seen.ROW
    return False


def _seen(row_group: RowGroup, key: Comparable) -> _Seen:
    block, number = row_group.block, row_group.number
    keys = block.cached_keys(number)
    if keys is None:
        return _Seen.UNREAD if bloom.may_hold(row_group.index.bloom, key) else _Seen.NO_VERSION
    last = keys.last(key)
    if last < 0:
        return _Seen.NO_VERSION
    if not row_group.index.deletions:
        return _Seen.ROW
    deleted = block.cached_deletion(number, last)
    return _Seen.UNREAD if deleted is None else _Seen.DELETION if deleted else _Seen.ROW


def _look_up(
    level: BlockLevel, keys: Sequence[Comparable], positions: Sequence[int], found: list[bool | None]
) -> list[int]:
    """Look up the keys at some positions in a level, and note the results. Returns the positions not found in it."""
    unknown: list[int] = []
    by_row_group: dict[RowGroup, list[int]] = {}
    for position in positions:
        row_group = level.row_group_of(keys[position])
        if row_group is None:
            unknown.append(position)
        else:
            by_row_group.setdefault(row_group, []).append(position)
    for row_group, in_group in by_row_group.items():
        unknown += _look_up_in_row_group(row_group, keys, in_group, found)
    return unknown


def _look_up_in_row_group(
    row_group: RowGroup, keys: Sequence[Comparable], positions: Sequence[int], found: list[bool | None]
) -> list[int]:
    block, number = row_group.block, row_group.number
    unknown: list[int] = []
    if block.cached_keys(number) is None:
        maybe = [position for position in positions if bloom.may_hold(row_group.index.bloom, keys[position])]
        unknown = sorted({*positions}.difference(maybe))
        positions = maybe
    if not positions:
        return unknown
    group_keys = block.keys(number)
    if len(positions) < _TOGETHER_MIN:
        rows = [group_keys.find(keys[position]) for position in positions]
    else:
        wanted = pa.array([keys[position] for position in positions], group_keys.array.type)
        rows = pc.fill_null(pc.index_in(wanted, value_set=group_keys.array), -1).to_pylist()
    for position, row in zip(positions, rows, strict=True):
        if row < 0:
            unknown.append(position)
        else:
            deleted = row_group.index.deletions and block.is_deletion(
                number, _last_version(group_keys.array, row, row_group)
            )
            found[position] = not deleted
    return unknown


def _last_version(keys: Any, row: int, row_group: RowGroup) -> int:
    """Return the row of the newest version of a key. The versions of one key are ordered from oldest to newest."""
    if row_group.index.unique:
        return row
    while row + 1 < len(keys) and keys[row + 1] == keys[row]:
        row += 1
    return row
