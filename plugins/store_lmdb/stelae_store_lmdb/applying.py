"""Applying rows: what each kind of operation does.

The effect of an entry is worked out beside the rows that there are, and put among them as a whole: an entry that cannot
be applied to its end changes nothing. Of several versions of a row that one entry writes, only the last is ever seen,
and only that one is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stelae.rows.keys import encode_keys
from stelae.spi.errors import Corrupt, SchemaMismatch
from stelae.spi.payload import OpGroup, WritePayload
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout, Schema
from stelae.spi.store import RowFault
from stelae.spi.write import OpKind, RowCode
from stelae_store_lmdb.memory import MemoryPart
from stelae_store_lmdb.tree import RowTree, is_deletion
from stelae_store_lmdb.values import DELETION, Row, RowReader, plain_default, row_encoder

_INSERTS = frozenset({OpKind.INSERT, OpKind.INSERT_IGNORE})
_UPDATES = frozenset({OpKind.UPDATE, OpKind.UPDATE_IGNORE})
_DELETES = frozenset({OpKind.DELETE, OpKind.DELETE_IGNORE})
_IGNORES = frozenset({OpKind.INSERT_IGNORE, OpKind.UPDATE_IGNORE, OpKind.DELETE_IGNORE})


@dataclass(frozen=True, slots=True)
class Readable:
    """A group whose rows could be read, with their encoded keys."""

    kind: OpKind
    rows: RowBatch
    keys: list[bytes]


def readable(payload: WritePayload, schemas: Mapping[int, Schema]) -> list[Readable]:
    """Read all groups of an entry. ``Corrupt``: one cannot be read, so none may be applied."""
    schema = schemas.get(payload.schema_version)
    if schema is None:
        raise Corrupt(f"rows of schema version {payload.schema_version}, which was never applied")
    found = []
    for group in payload.groups:
        try:
            rows = group.rows(schema) if group.row_count else _no_rows(group, schema)
            found.append(Readable(group.kind, rows, encode_keys(schema, rows)))
        except (SchemaMismatch, ValueError) as error:
            raise Corrupt(f"rows without the key of schema version {schema.version}: {error}") from error
    return found


class Applier:
    """Works out one entry. ``staged`` is what it writes: contents by encoded key.

    ``new_rows``: the columns of ``schema``, with the defaults of new rows that leave some of them out."""

    def __init__(
        self, memory: MemoryPart, tree: RowTree | None, schema: Schema, new_rows: Layout, reader: RowReader
    ) -> None:
        self.staged: dict[bytes, bytes] = {}
        self._memory = memory
        self._tree = tree
        self._schema = schema
        self._new_rows = new_rows
        self._reader = reader
        self._encode = row_encoder(schema)

    def write(self, groups: Sequence[Readable], skip: set[int]) -> tuple[RowFault, ...]:
        """Do the groups in their order, but for the rows numbered in ``skip``; return the rows not taken."""
        faults: list[RowFault] = []
        start = 0
        for group in groups:
            places = [place for place in range(len(group.keys)) if start + place not in skip]
            faults += [RowFault(start + place, code) for place, code in self._step(group, places)]
            start += len(group.keys)
        return tuple(faults)

    def _step(self, group: Readable, places: Sequence[int]) -> list[tuple[int, RowCode]]:
        kind = group.kind
        if kind in _DELETES:
            return self._delete(group, places)
        whole = set(group.rows.layout.ids) >= set(self._schema.layout.ids)
        if kind in _UPDATES or (kind is OpKind.UPSERT and not whole):
            return self._merge(group, places)
        return self._replace(group, places)

    def _replace(self, group: Readable, places: Sequence[int]) -> list[tuple[int, RowCode]]:
        """Insert or upsert whole rows one by one."""
        rows = group.rows.select(self._new_rows).to_rows()
        staged, encode, keys = self.staged, self._encode, group.keys
        if group.kind not in _INSERTS:
            for place in places:
                staged[keys[place]] = encode(rows[place])
            return []
        refused = []
        for place in places:
            key = keys[place]
            if self._live(key) is not None:
                refused.append(place)
            else:
                staged[key] = encode(rows[place])
        return _faults(group.kind, refused, RowCode.ALREADY_PRESENT)

    def _delete(self, group: Readable, places: Sequence[int]) -> list[tuple[int, RowCode]]:
        refused = []
        for place in places:
            key = group.keys[place]
            if self._live(key) is None:
                refused.append(place)
            else:
                self.staged[key] = DELETION
        return _faults(group.kind, refused, RowCode.NOT_FOUND)

    def _merge(self, group: Readable, places: Sequence[int]) -> list[tuple[int, RowCode]]:
        """Update rows, or upsert some columns: what is not given stays, or takes its default."""
        given = {column_id: place for place, column_id in enumerate(group.rows.layout.ids)}
        sources = [given.get(column_id) for column_id in self._schema.layout.ids]
        values = group.rows.to_rows()
        defaults: Row = tuple(map(plain_default, self._new_rows.columns)) if group.kind is OpKind.UPSERT else ()
        refused = []
        for place in places:
            key = group.keys[place]
            live = self._live(key)
            if live is None and group.kind in _UPDATES:
                refused.append(place)
                continue
            old = defaults if live is None else self._reader.row(live)
            new = values[place]
            row: list[Any] = [o if s is None else new[s] for o, s in zip(old, sources, strict=True)]
            self.staged[key] = self._encode(row)
        return _faults(group.kind, refused, RowCode.NOT_FOUND)

    def _live(self, key: bytes) -> bytes | None:
        """The newest version of a row, unless it is a deletion."""
        contents = self.staged.get(key)
        if contents is None:
            version = self._memory.chains.get(key)
            if version is not None:
                contents = version[2]
            elif self._tree is not None:
                found = self._tree.newest(key)
                contents = None if found is None else found[2]
        return None if contents is None or is_deletion(contents) else contents


def _no_rows(group: OpGroup, schema: Schema) -> RowBatch:
    return RowBatch.from_equal_rows(schema.project(group.columns), [])


def _faults(kind: OpKind, rows: Sequence[int], code: RowCode) -> list[tuple[int, RowCode]]:
    return [] if kind in _IGNORES else [(row, code) for row in rows]
