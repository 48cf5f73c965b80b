"""Versions of rows as Arrow arrays.

A version is the result of one entry for one row: all values, some values (a partial version), or a deletion. No code
here loops over versions in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

STAMP_MAX = (1 << 63) - 1  #: Above every hybrid timestamp.


@dataclass(frozen=True, slots=True, eq=False)
class RowVersions:
    """Versions of rows, as arrays of the same length.

    ``columns`` has the requested columns by id. A value is null in a deletion, in a partial version without the column,
    and if the row's schema version did not have the column yet."""

    keys: Any  #: Comparables.
    stamps: Any  #: Hybrid timestamps, ``int64``.
    deleted: Any  #: ``bool``; ``None``: no version is a deletion.
    schemas: Any  #: Schema versions of the rows, ``int32``.
    columns: Mapping[int, Any]
    partial: Any = (
        None  #: Numbers of the versions' column sets, ``int32``; 0: all columns. ``None``: no version is partial.
    )

    def __len__(self) -> int:
        return len(self.keys)

    def slice(self, start: int, length: int) -> RowVersions:
        """Return ``length`` versions from ``start`` on, without copying."""
        if start == 0 and length == len(self.keys):
            return self
        return RowVersions(
            self.keys.slice(start, length),
            self.stamps.slice(start, length),
            None if self.deleted is None else self.deleted.slice(start, length),
            self.schemas.slice(start, length),
            {column_id: array.slice(start, length) for column_id, array in self.columns.items()},
            None if self.partial is None else self.partial.slice(start, length),
        )

    def take(self, indices: Any) -> RowVersions:
        """Return the versions at some positions."""
        return RowVersions(
            self.keys.take(indices),
            self.stamps.take(indices),
            None if self.deleted is None else self.deleted.take(indices),
            self.schemas.take(indices),
            {column_id: array.take(indices) for column_id, array in self.columns.items()},
            None if self.partial is None else self.partial.take(indices),
        )

    def select(self, ids: Sequence[int]) -> RowVersions:
        """Return the same versions with only some columns. Columns that they lack are ignored."""
        columns = self.columns
        if columns.keys() == set(ids):
            return self
        chosen = {column_id: columns[column_id] for column_id in ids if column_id in columns}
        return RowVersions(self.keys, self.stamps, self.deleted, self.schemas, chosen, self.partial)


def combined(parts: Sequence[RowVersions], types: Mapping[int, Any]) -> RowVersions:
    """Concatenate versions, with the columns of ``types``. A column that a part lacks is null."""
    if len(parts) == 1 and parts[0].columns.keys() == types.keys():
        return parts[0]
    deleted = partial = None
    if any(part.deleted is not None for part in parts):
        deleted = joined([pa.repeat(False, len(p)) if p.deleted is None else p.deleted for p in parts])
    if any(part.partial is not None for part in parts):
        whole = pa.scalar(0, pa.int32())
        partial = joined([pa.repeat(whole, len(p)) if p.partial is None else p.partial for p in parts])
    return RowVersions(
        joined([part.keys for part in parts]),
        joined([part.stamps for part in parts]),
        deleted,
        joined([part.schemas for part in parts]),
        {
            column_id: joined(
                [part.columns[column_id] if column_id in part.columns else pa.nulls(len(part), kind) for part in parts]
            )
            for column_id, kind in types.items()
        },
        partial,
    )


def same_as_next(keys: Any) -> Any:
    """Return for each sorted key whether the next key is the same; false for the last one."""
    if not len(keys):
        return pa.array([], pa.bool_())
    return joined([pc.equal(keys.slice(0, len(keys) - 1), keys.slice(1)), pa.array([False])])


def joined(arrays: Sequence[Any]) -> Any:
    """Return arrays as one array."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
