"""Applying rows: what each kind of operation does, a group at a time.

The common case, new rows with rising keys, is a few calls of Arrow whatever the number of rows. Otherwise each key is
looked up, and groups that keep no row order among themselves are told apart by key: of several versions of a row that
one group writes, only the last is ever seen."""

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
from stelae_store_columnar.lookup import Lookup
from stelae_store_columnar.memory import MemoryPart
from stelae_store_columnar.versions import Versions

_INSERTS = frozenset({OpKind.INSERT, OpKind.INSERT_IGNORE})
_UPDATES = frozenset({OpKind.UPDATE, OpKind.UPDATE_IGNORE})
_DELETES = frozenset({OpKind.DELETE, OpKind.DELETE_IGNORE})
_IGNORES = frozenset({OpKind.INSERT_IGNORE, OpKind.UPDATE_IGNORE, OpKind.DELETE_IGNORE})
_SMALL_ROWS = 256  #: Up to here a list in Python is quicker than calls of Arrow.


@dataclass(frozen=True, slots=True)
class Readable:
    """A group whose rows could be read, with their comparables."""

    kind: OpKind
    rows: RowBatch
    keys: Any
    row_bytes: int


def readable(payload: WritePayload, schemas: Mapping[int, Schema], order: KeyOrder) -> list[Readable]:
    """Read all groups of an entry. ``Corrupt``: one cannot be read, so none may be applied."""
    schema = schemas.get(payload.schema_version)
    if schema is None:
        raise Corrupt(f"rows of schema version {payload.schema_version}, which was never applied")
    found = []
    for group in payload.groups:
        try:
            rows = group.rows(schema) if group.row_count else _no_rows(group, schema)
            found.append(Readable(group.kind, rows, order.array(rows), len(group.body) // max(1, group.row_count)))
        except (SchemaMismatch, ValueError) as error:
            raise Corrupt(f"rows without the key of schema version {schema.version}: {error}") from error
    return found


def overwrites(payload: WritePayload, schema: Schema) -> bool:
    """Whether all that an entry writes are whole rows, whatever was there before."""
    whole = payload.schema_version == schema.version
    return whole and all(group.kind is OpKind.UPSERT and group.columns is None for group in payload.groups)


class Applier:
    """Writes the groups of one entry into the part in memory.

    ``new_rows``: the columns of ``schema``, with the defaults of new rows that leave some of them out."""

    def __init__(
        self, memory: MemoryPart, lookup: Lookup, schema: Schema, new_rows: Layout, types: Mapping[int, Any], stamp: int
    ) -> None:
        self._memory = memory
        self._lookup = lookup
        self._schema = schema
        self._new_rows = new_rows
        self._types = types
        self._stamp = stamp

    def write(self, groups: Sequence[Readable], skip: set[int]) -> tuple[RowFault, ...]:
        """Apply groups in their order, but for the rows numbered in ``skip``; return the rows not taken."""
        faults: list[RowFault] = []
        start = 0
        for group in groups:
            count = len(group.rows)
            places: Sequence[int] = range(count)
            rest = group
            if skip:
                places = [place for place in places if start + place not in skip]
                if len(places) < count:
                    rest = _taken(group, places)
            if places:
                faults += [RowFault(start + places[row], code) for row, code in self._step(rest)]
            start += count
        self._memory.settle(self._types)
        return tuple(faults)

    def _step(self, group: Readable) -> list[tuple[int, RowCode]]:
        kind = group.kind
        if kind in _DELETES:
            return self._delete(group)
        whole = set(group.rows.layout.ids) >= set(self._schema.layout.ids)
        if kind in _UPDATES or (kind is OpKind.UPSERT and not whole):
            return self._merge(group)
        values = group.keys.to_pylist() if len(group.keys) <= _SMALL_ROWS else None
        run = _rising(group.keys, values)
        if run is not None and self._lookup.is_gap(*run):
            rows = group.rows.select(self._new_rows)
            size_bytes = group.row_bytes * len(rows)
            self._memory.append_run(self._versions(rows, group.keys), run, size_bytes)
            return []
        keys = values if values is not None else group.keys.to_pylist()
        return self._insert(group, keys) if kind in _INSERTS else self._replace(group, keys)

    def _replace(self, group: Readable, keys: list[Comparable]) -> list[tuple[int, RowCode]]:
        """Upsert whole rows: nothing needs to be known of what was there."""
        self._append(group.rows.select(self._new_rows), group.keys, keys, group.row_bytes)
        return []

    def _insert(self, group: Readable, keys: list[Comparable]) -> list[tuple[int, RowCode]]:
        taken: list[int] = []
        refused: list[int] = []
        seen: set[Comparable] = set()
        for row, live in enumerate(self._lookup.find(keys)):
            if live or keys[row] in seen:
                refused.append(row)
            else:
                taken.append(row)
                seen.add(keys[row])
        rest = _taken(group, taken) if refused else group
        if taken:
            kept = [keys[row] for row in taken] if refused else keys
            self._append(rest.rows.select(self._new_rows), rest.keys, kept, group.row_bytes)
        return _faults(group.kind, refused, RowCode.ALREADY_PRESENT)

    def _delete(self, group: Readable) -> list[tuple[int, RowCode]]:
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
            rest = _taken(group, taken) if refused else group
            kept = [keys[row] for row in taken]
            columns = dict(zip(rest.rows.layout.ids, rest.rows.arrow.columns, strict=True))
            versions = Versions(
                rest.keys,
                pa.repeat(pa.scalar(self._stamp, pa.int64()), len(kept)),
                pa.repeat(True, len(kept)),
                _schemas(self._schema.version, len(kept)),
                {column_id: columns[column_id] for column_id in self._schema.key},
            )
            bottom = self._lookup.bottom(min(kept), max(kept))
            self._memory.append(versions, kept, group.row_bytes * len(kept), self._stamp, gone=True, bottom=bottom)
        return _faults(group.kind, refused, RowCode.NOT_FOUND)

    def _merge(self, group: Readable) -> list[tuple[int, RowCode]]:
        """Update rows, or upsert some columns: what is not given stays, or takes its default.

        All rows of a group bring the same columns, so of several for one key the last one says it all."""
        keys = group.keys.to_pylist()
        found = self._lookup.find(keys)
        updating = group.kind in _UPDATES
        last = {key: row for row, key in enumerate(keys)}
        rows = [*last.values()] if len(last) == len(keys) else sorted(last.values())
        live = [row for row in rows if found[row]]
        if live:
            rest = group if len(live) == len(keys) else _taken(group, live)
            self._append(rest.rows, rest.keys, [keys[row] for row in live], group.row_bytes)
        if updating:
            return _faults(group.kind, [row for row, here in enumerate(found) if not here], RowCode.NOT_FOUND)
        new = [row for row in rows if not found[row]]
        if new:
            rest = group if len(new) == len(keys) else _taken(group, new)
            whole = rest.rows.select(self._new_rows)
            self._append(whole, rest.keys, [keys[row] for row in new], self._schema.layout.row_bytes_min)
        return []

    def _append(self, rows: RowBatch, keys: Any, values: Sequence[Comparable], row_bytes: int) -> None:
        versions = self._versions(rows, keys)
        self._memory.append(versions, values, row_bytes * len(values), self._stamp, gone=False, bottom=False)

    def _versions(self, rows: RowBatch, keys: Any) -> Versions:
        """Versions of rows; partial ones if the rows lack columns."""
        count, schema = len(rows), self._schema
        columns = dict(zip(rows.layout.ids, rows.arrow.columns, strict=True))
        given = frozenset(columns).intersection(schema.layout.ids)
        partial = None
        if len(given) < len(schema.columns):
            partial = pa.repeat(pa.scalar(self._memory.sets.number(given), pa.int32()), count)
        return Versions(
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
    """The same schema version so many times."""
    return _same(version, 1 << max(12, (count - 1).bit_length())).slice(0, count)


@lru_cache(maxsize=8)
def _same(version: int, count: int) -> Any:
    return pa.repeat(pa.scalar(version, pa.int32()), count)


def _rising(keys: Any, values: list[Comparable] | None) -> tuple[Comparable, Comparable] | None:
    """The first and the last key, if they rise strictly."""
    if values is not None:
        return (values[0], values[-1]) if all(map(lt, values, values[1:])) else None
    rising = pc.all(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1))).as_py()
    return (keys[0].as_py(), keys[-1].as_py()) if rising else None


def _taken(group: Readable, places: Sequence[int]) -> Readable:
    indices = pa.array(places, pa.int64())
    rows = RowBatch(group.rows.layout, group.rows.arrow.take(indices))
    return Readable(group.kind, rows, group.keys.take(indices), group.row_bytes)


def _faults(kind: OpKind, rows: Sequence[int], code: RowCode) -> list[tuple[int, RowCode]]:
    return [] if kind in _IGNORES else [(row, code) for row in rows]
