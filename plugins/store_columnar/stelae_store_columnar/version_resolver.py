"""The resolution of versions into rows: which versions count, and the values of partial versions.

Parts are ordered from oldest to newest. Each is sorted by key, and the versions of one key are in log order. A stable
sort by key keeps that order. A partial version takes its other columns from the version before it. That one is in one
of the parts, too, because a partial version is only written over an existing row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stelae_store_columnar.schema_adapter import SchemaAdapter
from stelae_store_columnar.versions import STAMP_MAX, RowVersions, combined, joined, same_as_next


class ColumnSets:
    """The sets of columns of partial versions, numbered from 1. Only the applying thread adds sets."""

    def __init__(self) -> None:
        self._numbers: dict[frozenset[int], int] = {}
        self._sets: list[frozenset[int]] = [frozenset()]

    def number(self, ids: frozenset[int]) -> int:
        """Return the number of a set, and add it if it is new."""
        found = self._numbers.get(ids)
        if found is None:
            found = len(self._sets)
            self._sets.append(ids)
            self._numbers[ids] = found
        return found

    def ids(self, number: int) -> frozenset[int]:
        """Return the ids of the columns of a set; for 0, none."""
        return self._sets[number]

    def lacking(self, column_id: int) -> tuple[int, ...]:
        """Return the numbers of the sets without a column."""
        return tuple(n for n, ids in enumerate(self._sets) if n and column_id not in ids)


class VersionResolver:
    """Resolves versions into rows with the columns of ``types``."""

    def __init__(self, types: Mapping[int, Any], adapter: SchemaAdapter, sets: ColumnSets) -> None:
        self.types = types
        self._fitting = adapter
        self._sets = sets

    def visible(self, parts: Sequence[RowVersions], at: int | None) -> RowVersions:
        """Return the rows that are visible as of a time, in key order. ``None``: the newest rows."""
        whole, order = self._ordered(parts)
        if at is not None and len(whole):
            early = pc.less_equal(whole.stamps, _stamp(at))
            if not pc.all(early).as_py():
                order = _chosen(order, early if order is None else early.take(order))
        mask = pc.invert(same_as_next(_in_order(whole.keys, order)))
        if whole.deleted is not None:
            mask = pc.and_not(mask, _in_order(whole.deleted, order))
        return self._picked(whole, order, mask)

    def needed(self, parts: Sequence[RowVersions], floor: int, bottom: bool) -> RowVersions:
        """Return the versions that a read at or above ``floor`` can see, in order.

        ``bottom`` is true if no older version of these keys exists anywhere else. Only then a deletion may be
        dropped."""
        whole, order = self._ordered(parts)
        count = len(whole)
        if not count:
            return whole
        keys, stamps = _in_order(whole.keys, order), _in_order(whole.stamps, order)
        # A version is visible from its own timestamp to before that of the next one. No read is below the floor.
        later, own = stamps.slice(1), stamps.slice(0, count - 1)
        outlives = pc.and_(pc.greater(later, _stamp(floor)), pc.greater(later, own))
        mask = pc.or_(pc.invert(same_as_next(keys)), joined([outlives, pa.array([True])]))
        if bottom and whole.deleted is not None:
            mask = pc.and_not(mask, pc.and_(_in_order(whole.deleted, order), pc.less_equal(stamps, _stamp(floor))))
        return self._picked(whole, order, mask)

    def newest(self, part: RowVersions, at: int | None) -> RowVersions:
        """Return the newest version of each key of a sorted part as of a time, deletions too.

        Partial versions cannot do without the versions before them."""
        assert part.partial is None
        if at is not None:
            part = part.take(pc.indices_nonzero(pc.less_equal(part.stamps, _stamp(at))))
        return part.take(pc.indices_nonzero(pc.invert(same_as_next(part.keys))))

    def history(self, parts: Sequence[RowVersions]) -> RowVersions:
        """Return all versions, by key and then in log order."""
        whole, order = self._ordered(parts)
        return self._picked(whole, order, pa.repeat(True, len(whole)))

    def complete(self, below: Sequence[RowVersions], parts: Sequence[RowVersions]) -> RowVersions:
        """Return all versions of ``parts`` with all columns.

        Partial ones take the others from the versions ``below``."""
        whole, order = self._ordered([*below, *parts])
        first = sum(map(len, below))
        own = pa.repeat(True, len(whole))
        if first:
            own = _in_order(joined([pa.repeat(False, first), pa.repeat(True, len(whole) - first)]), order)
        return self._picked(whole, order, own)

    def _ordered(self, parts: Sequence[RowVersions]) -> tuple[RowVersions, Any]:
        """Combine parts. Returns the versions and the indices that sort them; ``None`` if they are sorted."""
        whole = combined(parts, self.types)
        return whole, pc.sort_indices(whole.keys) if len(parts) > 1 else None

    def _picked(self, whole: RowVersions, order: Any, mask: Any) -> RowVersions:
        """Return the versions that a mask over the sorted versions selects, all of them with all columns."""
        if whole.partial is not None:
            return self._inherited(whole, order, pc.indices_nonzero(mask))
        if order is None and pc.all(mask).as_py():
            return whole
        return whole.take(_chosen(order, mask))

    def _inherited(self, whole: RowVersions, order: Any, positions: Any) -> RowVersions:
        """Return the versions at some positions in sorted order.

        Each column comes from the last version that has it."""
        partial = _in_order(whole.partial, order)
        schemas = _in_order(whole.schemas, order)
        own = schemas.take(positions)
        sources: dict[tuple[int, ...], Any] = {(): positions}
        columns = {}
        for column_id, array in whole.columns.items():
            lacking = self._sets.lacking(column_id)
            source = sources.get(lacking)
            if source is None:
                source = sources[lacking] = _last_given(partial, lacking).take(positions)
            values = array.take(source if order is None else order.take(source))
            if lacking:
                values = self._fitting.inherited(column_id, own, schemas.take(source), values)
            columns[column_id] = values
        physical = positions if order is None else order.take(positions)
        return RowVersions(
            whole.keys.take(physical),
            whole.stamps.take(physical),
            None if whole.deleted is None else whole.deleted.take(physical),
            own,
            columns,
        )


def _last_given(partial: Any, lacking: tuple[int, ...]) -> Any:
    """Return for each sorted version the position of the last version, up to itself, that has a column.

    ``lacking`` are the numbers of the sets without that column."""
    without_column = pc.is_in(partial, value_set=pa.array(lacking, pa.int32()))
    positions = pc.indices_nonzero(pa.repeat(True, len(partial)))
    return pc.fill_null_forward(pc.if_else(without_column, pa.scalar(None, positions.type), positions))


def _in_order(array: Any, order: Any) -> Any:
    return array if order is None else array.take(order)


def _chosen(order: Any, mask: Any) -> Any:
    return pc.indices_nonzero(mask) if order is None else order.filter(mask)


def _stamp(number: int) -> Any:
    return pa.scalar(min(number, STAMP_MAX), pa.int64())
