"""The application of a write entry: what each kind of operation does.

The effect of an entry is computed in a separate dict and then put into the memtable as a whole. So an entry that cannot
be applied to its end changes nothing. If an entry writes several versions of a row, only the last one is kept, because
no read can see the others."""

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
from stelae_store_lmdb.memtable import LmdbMemtable
from stelae_store_lmdb.tree import RowTree, is_deletion
from stelae_store_lmdb.values import DELETION, Row, RowReader, plain_default, row_encoder

_INSERTS = frozenset({OpKind.INSERT, OpKind.INSERT_IGNORE})
_UPDATES = frozenset({OpKind.UPDATE, OpKind.UPDATE_IGNORE})
_DELETES = frozenset({OpKind.DELETE, OpKind.DELETE_IGNORE})
_IGNORES = frozenset({OpKind.INSERT_IGNORE, OpKind.UPDATE_IGNORE, OpKind.DELETE_IGNORE})


@dataclass(frozen=True, slots=True)
class KeyedGroup:
    """A group of a payload, decoded, with the encoded keys of its rows."""

    kind: OpKind
    rows: RowBatch
    keys: list[bytes]


def decode_groups(payload: WritePayload, schemas: Mapping[int, Schema]) -> list[KeyedGroup]:
    """Decode all groups of an entry. ``Corrupt``: one of them cannot be decoded, so none may be applied."""
    schema = schemas.get(payload.schema_version)
    if schema is None:
        raise Corrupt(f"an entry has rows of schema version {payload.schema_version}, which was never applied")
    decoded = []
    for group in payload.groups:
        try:
            rows = group.rows(schema) if group.row_count else _empty_rows(group, schema)
            decoded.append(KeyedGroup(group.kind, rows, encode_keys(schema, rows)))
        except (SchemaMismatch, ValueError) as error:
            raise Corrupt(f"the rows of an entry do not fit schema {schema.version}: {error}") from error
    return decoded


class LmdbApplier:
    """Computes the effect of one entry. ``staged`` has the versions that it writes: contents by encoded key.

    Args:
        memory: the memtable.
        tree: the rows in the environment, if there is one.
        schema: in force.
        new_rows: the columns of ``schema`` with the defaults of new rows that leave some of them out.
        reader: reads versions as rows of ``schema``.
    """

    def __init__(
        self, memory: LmdbMemtable, tree: RowTree | None, schema: Schema, new_rows: Layout, reader: RowReader
    ) -> None:
        self.staged: dict[bytes, bytes] = {}
        self._memory = memory
        self._tree = tree
        self._schema = schema
        self._new_rows = new_rows
        self._reader = reader
        self._encode = row_encoder(schema)

    def write(self, groups: Sequence[KeyedGroup], skip: set[int]) -> tuple[RowFault, ...]:
        """Compute groups in their order, without the rows whose numbers are in ``skip``. Returns the refused rows."""
        faults: list[RowFault] = []
        start = 0
        for group in groups:
            positions = [position for position in range(len(group.keys)) if start + position not in skip]
            faults += [RowFault(start + position, code) for position, code in self._step(group, positions)]
            start += len(group.keys)
        return tuple(faults)

    def _step(self, group: KeyedGroup, positions: Sequence[int]) -> list[tuple[int, RowCode]]:
        kind = group.kind
        if kind in _DELETES:
            return self._delete(group, positions)
        whole = set(group.rows.layout.ids) >= set(self._schema.layout.ids)
        if kind in _UPDATES or (kind is OpKind.UPSERT and not whole):
            return self._merge(group, positions)
        return self._replace(group, positions)

    def _replace(self, group: KeyedGroup, positions: Sequence[int]) -> list[tuple[int, RowCode]]:
        """Insert or upsert rows with all columns, one by one."""
        rows = group.rows.select(self._new_rows).to_rows()
        staged, encode, keys = self.staged, self._encode, group.keys
        if group.kind not in _INSERTS:
            for position in positions:
                staged[keys[position]] = encode(rows[position])
            return []
        refused = []
        for position in positions:
            key = keys[position]
            if self._live(key) is not None:
                refused.append(position)
            else:
                staged[key] = encode(rows[position])
        return _faults(group.kind, refused, RowCode.ALREADY_PRESENT)

    def _delete(self, group: KeyedGroup, positions: Sequence[int]) -> list[tuple[int, RowCode]]:
        refused = []
        for position in positions:
            key = group.keys[position]
            if self._live(key) is None:
                refused.append(position)
            else:
                self.staged[key] = DELETION
        return _faults(group.kind, refused, RowCode.NOT_FOUND)

    def _merge(self, group: KeyedGroup, positions: Sequence[int]) -> list[tuple[int, RowCode]]:
        """Update rows, or upsert some of their columns. The other columns keep their value, or get their default."""
        given = {column_id: position for position, column_id in enumerate(group.rows.layout.ids)}
        sources = [given.get(column_id) for column_id in self._schema.layout.ids]
        values = group.rows.to_rows()
        defaults: Row = tuple(map(plain_default, self._new_rows.columns)) if group.kind is OpKind.UPSERT else ()
        refused = []
        for position in positions:
            key = group.keys[position]
            live = self._live(key)
            if live is None and group.kind in _UPDATES:
                refused.append(position)
                continue
            old = defaults if live is None else self._reader.row(live)
            new = values[position]
            row: list[Any] = [o if s is None else new[s] for o, s in zip(old, sources, strict=True)]
            self.staged[key] = self._encode(row)
        return _faults(group.kind, refused, RowCode.NOT_FOUND)

    def _live(self, key: bytes) -> bytes | None:
        """Return the contents of a row's newest version, or ``None`` if the row does not exist."""
        contents = self.staged.get(key)
        if contents is None:
            version = self._memory.chains.get(key)
            if version is not None:
                contents = version[2]
            elif self._tree is not None:
                found = self._tree.newest(key)
                contents = None if found is None else found[2]
        return None if contents is None or is_deletion(contents) else contents


def _empty_rows(group: OpGroup, schema: Schema) -> RowBatch:
    return RowBatch.from_equal_rows(schema.project(group.columns), [])


def _faults(kind: OpKind, rows: Sequence[int], code: RowCode) -> list[tuple[int, RowCode]]:
    return [] if kind in _IGNORES else [(row, code) for row in rows]
