"""The application of write entries to the rows in memory, one group of operations at a time.

The common case is new rows with ascending keys. It takes a few calls of Arrow for any number of rows. In other cases
each key is looked up. Rows in memory need not be in key order, and if a group writes several versions of a row, only
the last one is ever read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import lt
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stelae.rows.key_order import Comparable, KeyOrder
from stelae.spi.errors import Corrupt, SchemaMismatch
from stelae.spi.payload import OpGroup, WritePayload
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout, Schema
from stelae.spi.store import RowFault
from stelae.spi.write import OpKind, RowCode
from stelae_store_columnar.key_lookup import ColumnarLookup
from stelae_store_columnar.memtable import ColumnarMemtable
from stelae_store_columnar.versions import RowVersions

_INSERTS = frozenset({OpKind.INSERT, OpKind.INSERT_IGNORE})
_UPDATES = frozenset({OpKind.UPDATE, OpKind.UPDATE_IGNORE})
_DELETES = frozenset({OpKind.DELETE, OpKind.DELETE_IGNORE})
_IGNORES = frozenset({OpKind.INSERT_IGNORE, OpKind.UPDATE_IGNORE, OpKind.DELETE_IGNORE})
_SMALL_ROWS = 256  #: Up to this number of rows, a Python list is faster than calls of Arrow.


@dataclass(frozen=True, slots=True)
class DecodedGroup:
    """A group of a payload, decoded."""

    kind: OpKind
    rows: RowBatch
    keys: Any  #: The comparables of the rows, as an Arrow array.
    row_bytes: int  #: Average size of a row.


def decode_groups(payload: WritePayload, schemas: Mapping[int, Schema], order: KeyOrder) -> list[DecodedGroup]:
    """Decode all groups of an entry. ``Corrupt``: one of them cannot be decoded, so none may be applied."""
    schema = schemas.get(payload.schema_version)
    if schema is None:
        raise Corrupt(f"an entry has rows of schema version {payload.schema_version}, which was never applied")
    decoded = []
    for group in payload.groups:
        try:
            rows = group.rows(schema) if group.row_count else _no_rows(group, schema)
            decoded.append(
                DecodedGroup(group.kind, rows, order.array(rows), len(group.body) // max(1, group.row_count))
            )
        except (SchemaMismatch, ValueError) as error:
            raise Corrupt(f"the rows of an entry do not fit schema {schema.version}: {error}") from error
    return decoded


def only_upserts_whole_rows(payload: WritePayload, schema: Schema) -> bool:
    """Return true if an entry only upserts rows with all columns, so that the existing rows do not matter."""
    whole = payload.schema_version == schema.version
    return whole and all(group.kind is OpKind.UPSERT and group.columns is None for group in payload.groups)


class ColumnarApplier:
    """Applies the groups of one entry to the memtable.

    Args:
        memory: the memtable.
        lookup: finds the rows that exist.
        schema: in force.
        new_rows: the columns of ``schema`` with the defaults of new rows that leave some of them out.
        types: the Arrow type of each column.
        stamp: the entry's hybrid timestamp.
    """

    def __init__(
        self,
        memory: ColumnarMemtable,
        lookup: ColumnarLookup,
        schema: Schema,
        new_rows: Layout,
        types: Mapping[int, Any],
        stamp: int,
    ) -> None:
        self._memory = memory
        self._lookup = lookup
        self._schema = schema
        self._new_rows = new_rows
        self._types = types
        self._stamp = stamp

    def write(self, groups: Sequence[DecodedGroup], skip: set[int]) -> tuple[RowFault, ...]:
        """Apply groups in their order, without the rows whose numbers are in ``skip``. Returns the refused rows."""
        faults: list[RowFault] = []
        start = 0
        for group in groups:
            count = len(group.rows)
            positions: Sequence[int] = range(count)
            group_rest = group
            if skip:
                positions = [position for position in positions if start + position not in skip]
                if len(positions) < count:
                    group_rest = _taken(group, positions)
            if positions:
                faults += [RowFault(start + positions[row], code) for row, code in self._step(group_rest)]
            start += count
        self._memory.merge_small_chunks(self._types)
        return tuple(faults)

    def _step(self, group: DecodedGroup) -> list[tuple[int, RowCode]]:
        kind = group.kind
        if kind in _DELETES:
            return self._delete(group)
        whole = set(group.rows.layout.ids) >= set(self._schema.layout.ids)
        if kind in _UPDATES or (kind is OpKind.UPSERT and not whole):
            return self._merge(group)
        values = group.keys.to_pylist() if len(group.keys) <= _SMALL_ROWS else None
        bounds = _ascending_bounds(group.keys, values)
        if bounds is not None and self._lookup.is_gap(*bounds):
            rows = group.rows.select(self._new_rows)
            size_bytes = group.row_bytes * len(rows)
            self._memory.append_ascending(self._versions(rows, group.keys), bounds, size_bytes)
            return []
        keys = values if values is not None else group.keys.to_pylist()
        return self._insert(group, keys) if kind in _INSERTS else self._replace(group, keys)

    def _replace(self, group: DecodedGroup, keys: list[Comparable]) -> list[tuple[int, RowCode]]:
        """Upsert rows with all columns. The existing rows need not be looked up."""
        self._append(group.rows.select(self._new_rows), group.keys, keys, group.row_bytes)
        return []

    def _insert(self, group: DecodedGroup, keys: list[Comparable]) -> list[tuple[int, RowCode]]:
        taken: list[int] = []
        refused: list[int] = []
        seen: set[Comparable] = set()
        for row, live in enumerate(self._lookup.find(keys)):
            if live or keys[row] in seen:
                refused.append(row)
            else:
                taken.append(row)
                seen.add(keys[row])
        group_rest = _taken(group, taken) if refused else group
        if taken:
            remaining = [keys[row] for row in taken] if refused else keys
            self._append(group_rest.rows.select(self._new_rows), group_rest.keys, remaining, group.row_bytes)
        return _faults(group.kind, refused, RowCode.ALREADY_PRESENT)

    def _delete(self, group: DecodedGroup) -> list[tuple[int, RowCode]]:
        keys = group.keys.to_pylist()
        taken: list[int] = []
        refused: list[int] = []
        seen: set[Comparable] = set()
        for row, live in enumerate(self._lookup.find(keys)):
            if not live or keys[row] in seen:
                refused.append(row)
            else:
                taken.append(row)
                seen.add(keys[row])
        if taken:
            group_rest = _taken(group, taken) if refused else group
            remaining = [keys[row] for row in taken]
            columns = dict(zip(group_rest.rows.layout.ids, group_rest.rows.arrow.columns, strict=True))
            versions = RowVersions(
                group_rest.keys,
                pa.repeat(pa.scalar(self._stamp, pa.int64()), len(remaining)),
                pa.repeat(True, len(remaining)),
                _schemas(self._schema.version, len(remaining)),
                {column_id: columns[column_id] for column_id in self._schema.key},
            )
            bottom = self._lookup.is_absent_in_blocks(min(remaining), max(remaining))
            self._memory.append(
                versions, remaining, group.row_bytes * len(remaining), self._stamp, deleted=True, bottom=bottom
            )
        return _faults(group.kind, refused, RowCode.NOT_FOUND)

    def _merge(self, group: DecodedGroup) -> list[tuple[int, RowCode]]:
        """Update rows, or upsert some of their columns. The other columns keep their value, or get their default.

        All rows of a group have the same columns, so of several rows with one key only the last one counts."""
        keys = group.keys.to_pylist()
        found = self._lookup.find(keys)
        updating = group.kind in _UPDATES
        last = {key: row for row, key in enumerate(keys)}
        rows = [*last.values()] if len(last) == len(keys) else sorted(last.values())
        live = [row for row in rows if found[row]]
        if live:
            group_rest = group if len(live) == len(keys) else _taken(group, live)
            self._append(group_rest.rows, group_rest.keys, [keys[row] for row in live], group.row_bytes)
        if updating:
            return _faults(group.kind, [row for row, here in enumerate(found) if not here], RowCode.NOT_FOUND)
        new = [row for row in rows if not found[row]]
        if new:
            group_rest = group if len(new) == len(keys) else _taken(group, new)
            whole = group_rest.rows.select(self._new_rows)
            self._append(whole, group_rest.keys, [keys[row] for row in new], self._schema.layout.row_bytes_min)
        return []

    def _append(self, rows: RowBatch, keys: Any, values: Sequence[Comparable], row_bytes: int) -> None:
        versions = self._versions(rows, keys)
        self._memory.append(versions, values, row_bytes * len(values), self._stamp, deleted=False, bottom=False)

    def _versions(self, rows: RowBatch, keys: Any) -> RowVersions:
        """Return the versions for rows. They are partial if the rows lack columns."""
        count, schema = len(rows), self._schema
        columns = dict(zip(rows.layout.ids, rows.arrow.columns, strict=True))
        given = frozenset(columns).intersection(schema.layout.ids)
        partial = None
        if len(given) < len(schema.columns):
            partial = pa.repeat(pa.scalar(self._memory.sets.number(given), pa.int32()), count)
        return RowVersions(
            keys,
            pa.repeat(pa.scalar(self._stamp, pa.int64()), count),
            None,
            _schemas(schema.version, count),
            columns,
            partial,
        )


def _no_rows(group: OpGroup, schema: Schema) -> RowBatch:
    return RowBatch.from_equal_rows(schema.project(group.columns), [])


def _schemas(version: int, count: int) -> Any:
    """Return an array with the same schema version ``count`` times."""
    return _same(version, 1 << max(12, (count - 1).bit_length())).slice(0, count)


@lru_cache(maxsize=8)
def _same(version: int, count: int) -> Any:
    return pa.repeat(pa.scalar(version, pa.int32()), count)


def _ascending_bounds(keys: Any, values: list[Comparable] | None) -> tuple[Comparable, Comparable] | None:
    """Return the first and the last key if the keys strictly ascend, else ``None``."""
    if values is not None:
        return (values[0], values[-1]) if all(map(lt, values, values[1:])) else None
    ascending = pc.all(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1))).as_py()
    return (keys[0].as_py(), keys[-1].as_py()) if ascending else None


def _taken(group: DecodedGroup, positions: Sequence[int]) -> DecodedGroup:
    indices = pa.array(positions, pa.int64())
    rows = RowBatch(group.rows.layout, group.rows.arrow.take(indices))
    return DecodedGroup(group.kind, rows, group.keys.take(indices), group.row_bytes)


def _faults(kind: OpKind, rows: Sequence[int], code: RowCode) -> list[tuple[int, RowCode]]:
    return [] if kind in _IGNORES else [(row, code) for row in rows]
