"""Versions of rows as Arrow arrays, and which of them count.

A version is what one entry made of one row: its values, or that it is gone. All functions here work on whole arrays;
none visits a version in Python. Parts that are put together come oldest first, each sorted by key and, for one key, in
the order in which the versions were applied; a stable sort by key then keeps that order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

STAMP_MAX = (1 << 63) - 1  #: Above every hybrid timestamp.


@dataclass(frozen=True, slots=True, eq=False)
class Versions:
    """Equally long arrays. ``columns`` are by id and hold those that were asked for: null in deletions, and where the
    row's schema version did not have the column yet."""

    keys: Any  #: Comparables.
    stamps: Any  #: Hybrid timestamps, ``int64``.
    deleted: Any  #: ``bool``; ``None`` where nothing is.
    schemas: Any  #: Schema version under which the row was written, ``int32``.
    columns: Mapping[int, Any]

    def __len__(self) -> int:
        return len(self.keys)

    def slice(self, start: int, length: int) -> Versions:
        """Return some in a row, without copying."""
        if start == 0 and length == len(self.keys):
            return self
        return Versions(
            self.keys.slice(start, length),
            self.stamps.slice(start, length),
            None if self.deleted is None else self.deleted.slice(start, length),
            self.schemas.slice(start, length),
            {column_id: array.slice(start, length) for column_id, array in self.columns.items()},
        )

    def take(self, indices: Any) -> Versions:
        """Return the versions at some places."""
        return Versions(
            self.keys.take(indices),
            self.stamps.take(indices),
            None if self.deleted is None else self.deleted.take(indices),
            self.schemas.take(indices),
            {column_id: array.take(indices) for column_id, array in self.columns.items()},
        )

    def select(self, ids: Sequence[int]) -> Versions:
        """Return the same versions with only those columns, as far as they are here."""
        columns = self.columns
        if len(columns) == len(ids):
            return self
        return Versions(
            self.keys, self.stamps, self.deleted, self.schemas, {i: columns[i] for i in ids if i in columns}
        )


def combined(parts: Sequence[Versions], types: Mapping[int, Any]) -> Versions:
    """Put parts one behind the other, with the columns of ``types``: null where a part lacks one."""
    if len(parts) == 1 and len(parts[0].columns) == len(types):
        return parts[0]
    deleted = None
    if any(part.deleted is not None for part in parts):
        deleted = _joined([pa.repeat(False, len(p)) if p.deleted is None else p.deleted for p in parts])
    return Versions(
        _joined([part.keys for part in parts]),
        _joined([part.stamps for part in parts]),
        deleted,
        _joined([part.schemas for part in parts]),
        {
            column_id: _joined(
                [part.columns[column_id] if column_id in part.columns else pa.nulls(len(part), kind) for part in parts]
            )
            for column_id, kind in types.items()
        },
    )


def visible(parts: Sequence[Versions], at: int | None, types: Mapping[int, Any]) -> Versions:
    """Return the rows as of a time (``None``: as of the newest version), in key order."""
    whole = combined(parts, types)
    order = _order(whole, len(parts))
    if at is not None and len(whole):
        early = pc.less_equal(whole.stamps, pa.scalar(min(at, STAMP_MAX), pa.int64()))
        if not pc.all(early).as_py():
            order = _chosen(order, early if order is None else early.take(order))
    keys = whole.keys if order is None else whole.keys.take(order)
    mask = _last_of_key(keys)
    if whole.deleted is not None:
        mask = pc.and_not(mask, whole.deleted if order is None else whole.deleted.take(order))
    return _picked(whole, order, mask)


def needed(parts: Sequence[Versions], floor: int, bottom: bool, types: Mapping[int, Any]) -> Versions:
    """Return the versions that a read at or above ``floor`` can see, in order.

    ``bottom`` says that no older version of these keys is anywhere else; only then may a deletion go."""
    whole = combined(parts, types)
    order = _order(whole, len(parts))
    count = len(whole)
    if not count:
        return whole
    keys = whole.keys if order is None else whole.keys.take(order)
    stamps = whole.stamps if order is None else whole.stamps.take(order)
    # A version is seen from its own timestamp to before its successor's; at or below the floor nobody looks.
    later, own = stamps.slice(1), stamps.slice(0, count - 1)
    limit = pa.scalar(min(floor, STAMP_MAX), pa.int64())
    outlives = pc.and_(pc.greater(later, limit), pc.greater(later, own))
    mask = pc.or_(_last_of_key(keys), _joined([outlives, pa.array([True])]))
    if bottom and whole.deleted is not None:
        deleted = whole.deleted if order is None else whole.deleted.take(order)
        mask = pc.and_not(mask, pc.and_(deleted, pc.less_equal(stamps, limit)))
    return _picked(whole, order, mask)


def in_order(parts: Sequence[Versions], types: Mapping[int, Any]) -> Versions:
    """Return all versions of some parts, by key and then as they were applied."""
    whole = combined(parts, types)
    order = _order(whole, len(parts))
    return whole if order is None else whole.take(order)


def same_as_next(keys: Any) -> Any:
    """Say of each sorted key whether the one behind it is the same; of the last one: no."""
    if not len(keys):
        return pa.array([], pa.bool_())
    return _joined([pc.equal(keys.slice(0, len(keys) - 1), keys.slice(1)), pa.array([False])])


def _last_of_key(keys: Any) -> Any:
    return pc.invert(same_as_next(keys))


def _order(whole: Versions, parts: int) -> Any:
    """How to sort parts that are put together; ``None``: they are."""
    return pc.sort_indices(whole.keys) if parts > 1 else None


def _chosen(order: Any, mask: Any) -> Any:
    return pc.indices_nonzero(mask) if order is None else order.filter(mask)


def _picked(whole: Versions, order: Any, mask: Any) -> Versions:
    if order is None and pc.all(mask).as_py():
        return whole
    return whole.take(_chosen(order, mask))


def _joined(arrays: Sequence[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
