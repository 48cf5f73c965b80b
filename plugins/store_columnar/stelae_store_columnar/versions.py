"""Versions of rows as Arrow arrays.

A version is what one entry made of one row: its values, some of its values, or that it is gone. Nothing here visits a
version in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

STAMP_MAX = (1 << 63) - 1  #: Above every hybrid timestamp.


@dataclass(frozen=True, slots=True, eq=False)
class Versions:
    """Equally long arrays. ``columns`` are by id and hold those that were asked for: null in deletions, where a partial
    version does not say, and where the row's schema version did not have the column yet."""

    keys: Any  #: Comparables.
    stamps: Any  #: Hybrid timestamps, ``int64``.
    deleted: Any  #: ``bool``; ``None`` where nothing is.
    schemas: Any  #: Schema version under which the row was written, ``int32``.
    columns: Mapping[int, Any]
    partial: Any = None  #: Number of the column set that a version brings, ``int32``, 0 for all; ``None``: all do.

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
            None if self.partial is None else self.partial.slice(start, length),
        )

    def take(self, indices: Any) -> Versions:
        """Return the versions at some places."""
        return Versions(
            self.keys.take(indices),
            self.stamps.take(indices),
            None if self.deleted is None else self.deleted.take(indices),
            self.schemas.take(indices),
            {column_id: array.take(indices) for column_id, array in self.columns.items()},
            None if self.partial is None else self.partial.take(indices),
        )

    def select(self, ids: Sequence[int]) -> Versions:
        """Return the same versions with only those columns, as far as they are here."""
        columns = self.columns
        if columns.keys() == set(ids):
            return self
        chosen = {column_id: columns[column_id] for column_id in ids if column_id in columns}
        return Versions(self.keys, self.stamps, self.deleted, self.schemas, chosen, self.partial)


def combined(parts: Sequence[Versions], types: Mapping[int, Any]) -> Versions:
    """Put parts one behind the other, with the columns of ``types``: null where a part lacks one."""
    if len(parts) == 1 and parts[0].columns.keys() == types.keys():
        return parts[0]
    deleted = partial = None
    if any(part.deleted is not None for part in parts):
        deleted = joined([pa.repeat(False, len(p)) if p.deleted is None else p.deleted for p in parts])
    if any(part.partial is not None for part in parts):
        whole = pa.scalar(0, pa.int32())
        partial = joined([pa.repeat(whole, len(p)) if p.partial is None else p.partial for p in parts])
    return Versions(
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
    """Say of each sorted key whether the one behind it is the same; of the last one: no."""
    if not len(keys):
        return pa.array([], pa.bool_())
    return joined([pc.equal(keys.slice(0, len(keys) - 1), keys.slice(1)), pa.array([False])])


def joined(arrays: Sequence[Any]) -> Any:
    """Return arrays as one."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
