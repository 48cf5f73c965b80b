"""From versions to rows: which versions count, and what those say that bring some columns only.

Parts come oldest first, each sorted by key and, for one key, in the order in which the versions were applied; a stable
sort by key keeps that order. A partial version takes what it does not bring from the version before it, which is in one
of the parts whenever the partial one is: it was written over a row that was there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stelae_store_columnar.fitting import Fitting
from stelae_store_columnar.versions import STAMP_MAX, Versions, combined, joined, same_as_next


class ColumnSets:
    """Sets of columns that partial versions bring, by number from 1. Written by the applying thread alone."""

    def __init__(self) -> None:
        self._numbers: dict[frozenset[int], int] = {}
        self._sets: list[frozenset[int]] = [frozenset()]

    def number(self, ids: frozenset[int]) -> int:
        """Return the number of a set, new or not."""
        found = self._numbers.get(ids)
        if found is None:
            found = len(self._sets)
            self._sets.append(ids)
            self._numbers[ids] = found
        return found

    def lacking(self, column_id: int) -> tuple[int, ...]:
        """Return the numbers of the sets without a column."""
        return tuple(n for n, ids in enumerate(self._sets) if n and column_id not in ids)


class Resolver:
    """Makes rows of versions, with the columns of ``types``."""

    def __init__(self, types: Mapping[int, Any], fitting: Fitting, sets: ColumnSets) -> None:
        self.types = types
        self._fitting = fitting
        self._sets = sets

    def visible(self, parts: Sequence[Versions], at: int | None) -> Versions:
        """Return the rows as of a time (``None``: as of the newest version), in key order."""
        whole, order = self._ordered(parts)
        if at is not None and len(whole):
            early = pc.less_equal(whole.stamps, _stamp(at))
            if not pc.all(early).as_py():
                order = _chosen(order, early if order is None else early.take(order))
        mask = pc.invert(same_as_next(_in_order(whole.keys, order)))
        if whole.deleted is not None:
            mask = pc.and_not(mask, _in_order(whole.deleted, order))
        return self._picked(whole, order, mask)

    def needed(self, parts: Sequence[Versions], floor: int, bottom: bool) -> Versions:
        """Return the versions that a read at or above ``floor`` can see, in order.

        ``bottom`` says that no older version of these keys is anywhere else; only then may a deletion go."""
        whole, order = self._ordered(parts)
        count = len(whole)
        if not count:
            return whole
        keys, stamps = _in_order(whole.keys, order), _in_order(whole.stamps, order)
        # A version is seen from its own timestamp to before its successor's; at or below the floor nobody looks.
        later, own = stamps.slice(1), stamps.slice(0, count - 1)
        outlives = pc.and_(pc.greater(later, _stamp(floor)), pc.greater(later, own))
        mask = pc.or_(pc.invert(same_as_next(keys)), joined([outlives, pa.array([True])]))
        if bottom and whole.deleted is not None:
            mask = pc.and_not(mask, pc.and_(_in_order(whole.deleted, order), pc.less_equal(stamps, _stamp(floor))))
        return self._picked(whole, order, mask)

    def history(self, parts: Sequence[Versions]) -> Versions:
        """Return all versions, by key and then as they were applied."""
        whole, order = self._ordered(parts)
        return self._picked(whole, order, pa.repeat(True, len(whole)))

    def completed(self, below: Sequence[Versions], parts: Sequence[Versions]) -> Versions:
        """Return all versions of ``parts``, with what partial ones among them take from those ``below``."""
        whole, order = self._ordered([*below, *parts])
        first = sum(map(len, below))
        mine = pa.repeat(True, len(whole))
        if first:
            mine = _in_order(joined([pa.repeat(False, first), pa.repeat(True, len(whole) - first)]), order)
        return self._picked(whole, order, mine)

    def _ordered(self, parts: Sequence[Versions]) -> tuple[Versions, Any]:
        """Parts put together, and how to sort them; ``None``: they are."""
        whole = combined(parts, self.types)
        return whole, pc.sort_indices(whole.keys) if len(parts) > 1 else None

    def _picked(self, whole: Versions, order: Any, mask: Any) -> Versions:
        """The versions of a mask over the sorted ones, none of them partial any more."""
        if whole.partial is not None:
            return self._inherited(whole, order, pc.indices_nonzero(mask))
        if order is None and pc.all(mask).as_py():
            return whole
        return whole.take(_chosen(order, mask))

    def _inherited(self, whole: Versions, order: Any, places: Any) -> Versions:
        """The versions at some places in sorted order; each column from the last version that brought it."""
        partial = _in_order(whole.partial, order)
        schemas = _in_order(whole.schemas, order)
        own = schemas.take(places)
        sources: dict[tuple[int, ...], Any] = {(): places}
        columns = {}
        for column_id, array in whole.columns.items():
            lacking = self._sets.lacking(column_id)
            source = sources.get(lacking)
            if source is None:
                source = sources[lacking] = _last_given(partial, lacking).take(places)
            values = array.take(source if order is None else order.take(source))
            if lacking:
                values = self._fitting.inherited(column_id, own, schemas.take(source), values)
            columns[column_id] = values
        physical = places if order is None else order.take(places)
        return Versions(
            whole.keys.take(physical),
            whole.stamps.take(physical),
            None if whole.deleted is None else whole.deleted.take(physical),
            own,
            columns,
        )


def _last_given(partial: Any, lacking: tuple[int, ...]) -> Any:
    """For each sorted version the place of the last one, itself included, that is not of a set that lacks a column."""
    silent = pc.is_in(partial, value_set=pa.array(lacking, pa.int32()))
    places = pc.indices_nonzero(pa.repeat(True, len(partial)))
    return pc.fill_null_forward(pc.if_else(silent, pa.scalar(None, places.type), places))


def _in_order(array: Any, order: Any) -> Any:
    return array if order is None else array.take(order)


def _chosen(order: Any, mask: Any) -> Any:
    return pc.indices_nonzero(mask) if order is None else order.filter(mask)


def _stamp(number: int) -> Any:
    return pa.scalar(min(number, STAMP_MAX), pa.int64())
