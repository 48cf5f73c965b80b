"""The application of a write entry: what each kind of operation does to the version chains."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Any

from stelae.rows.defaults import Defaults
from stelae.rows.keys import encode_keys
from stelae.rows.operation_encoding import row_numbers_of
from stelae.spi.errors import Corrupt, SchemaMismatch
from stelae.spi.payload import OpGroup, WritePayload
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout, Schema
from stelae.spi.store import ApplyEntry, RowFault
from stelae.spi.write import OpKind, RowCode
from stelae_store_memory.key_index import KeyIndex
from stelae_store_memory.version_chains import Version
from stelae_store_memory.written_rows import Row, WrittenRows, plain_default

_INSERTS = frozenset({OpKind.INSERT, OpKind.INSERT_IGNORE})
_UPDATES = frozenset({OpKind.UPDATE, OpKind.UPDATE_IGNORE})
_IGNORES = frozenset({OpKind.INSERT_IGNORE, OpKind.UPDATE_IGNORE, OpKind.DELETE_IGNORE})


class MemoryWriter:
    """Writes versions. One thread at a time calls it.

    ``versions`` is the number of versions in the chains, ``values_bytes`` the size of their values.
    """

    def __init__(
        self, chains: dict[bytes, Version], index: KeyIndex, superseded: deque[tuple[int, bytes]], defaults: Defaults
    ) -> None:
        self.defaults = defaults
        self._chains = chains
        self._index = index
        self._superseded = superseded
        self.versions = 0
        self.values_bytes = 0

    def write(self, entry: ApplyEntry, schemas: Mapping[int, Schema], current: Schema) -> tuple[RowFault, ...]:
        """Apply the rows of an entry, without those of skipped operations. Returns the refused rows.

        Raises:
            Corrupt: the rows cannot be decoded. Nothing of the entry was applied.
        """
        payload = entry.change
        assert isinstance(payload, WritePayload)
        schema = schemas.get(payload.schema_version)
        if schema is None:
            raise Corrupt(f"an entry has rows of schema version {payload.schema_version}, which was never applied")
        decoded = [self._read(group, schema) for group in payload.groups]
        skip = row_numbers_of(payload, entry.skip)
        new_rows = self.defaults.layout(current, schema)
        faults: list[RowFault] = []
        start = 0
        for group, (rows, keys) in zip(payload.groups, decoded, strict=True):
            positions: Iterable[int] = range(group.row_count)
            if skip:
                positions = [position for position in positions if start + position not in skip]
            group_writer = _GroupWriter(self, entry, current, new_rows, group, keys)
            found = group_writer.run(rows, positions)
            faults += [RowFault(start + position, code) for position, code in found]
            start += group.row_count
        return tuple(faults)

    def put(self, key: bytes, timestamp: int, index: int, written: WrittenRows | None, row: int) -> None:
        """Write one version. ``written`` is ``None`` for a deletion."""
        previous = self._chains.get(key)
        if previous is not None or written is None:
            self._superseded.append((timestamp, key))
        # The chain must exist before the index has the key, because the index drops keys without a chain.
        self._chains[key] = (timestamp, index, written, row, previous)
        if previous is None:
            self._index.add([key])
        self.versions += 1
        self.values_bytes += written.row_bytes if written is not None else 0

    def put_new(self, keys: list[bytes], timestamp: int, index: int, written: WrittenRows) -> bool:
        """Write all rows of ``written`` if none of their keys exists and no key occurs twice.

        Returns whether it did."""
        if not self._chains.keys().isdisjoint(keys) or len({*keys}) != len(keys):
            return False
        versions = zip(repeat(timestamp), repeat(index), repeat(written), range(len(keys)), repeat(None))
        self._chains.update(zip(keys, versions, strict=False))
        self._index.add(keys)
        self.versions += len(keys)
        self.values_bytes += len(keys) * written.row_bytes
        return True

    def note_removed(self, count: int) -> None:
        """Note that ``count`` versions were removed from the chains. Their values count with the average size."""
        self.values_bytes -= self.values_bytes * count // max(1, self.versions)
        self.versions -= count

    def live(self, key: bytes) -> Version | None:
        """Return the newest version of a row, or ``None`` if the row does not exist."""
        newest = self._chains.get(key)
        return newest if newest is not None and newest[2] is not None else None

    def _read(self, group: OpGroup, schema: Schema) -> tuple[RowBatch, list[bytes]]:
        try:
            rows = group.rows(schema)
            return rows, encode_keys(schema, rows)
        except (SchemaMismatch, ValueError) as error:
            raise Corrupt(f"the rows of an entry do not fit schema {schema.version}: {error}") from error


class _GroupWriter:
    """Writes one group of an entry.

    ``new_rows`` are the columns of ``schema`` with the defaults of new rows that leave some of them out."""

    def __init__(
        self,
        writer: MemoryWriter,
        entry: ApplyEntry,
        schema: Schema,
        new_rows: Layout,
        group: OpGroup,
        keys: list[bytes],
    ) -> None:
        self.writer = writer
        self.timestamp = entry.timestamp
        self.index = entry.op_id.index
        self.schema = schema
        self.new_rows = new_rows
        self.kind = group.kind
        self.row_bytes = len(group.body) // max(1, group.row_count)
        self.keys = keys

    def run(self, rows: RowBatch, positions: Iterable[int]) -> list[tuple[int, RowCode]]:
        if self.kind in (OpKind.DELETE, OpKind.DELETE_IGNORE):
            return self._delete(positions)
        if self.kind in _UPDATES:
            return self._merge(rows, positions)
        whole = set(rows.layout.ids) >= {c.id for c in self.schema.columns}
        if self.kind is OpKind.UPSERT and not whole:
            return self._merge(rows, positions)
        written = WrittenRows(RowBatch(self.schema.layout, rows.select(self.new_rows).arrow), self.row_bytes)
        if isinstance(positions, range) and self.writer.put_new(self.keys, self.timestamp, self.index, written):
            return []
        return self._replace(written, positions)

    def _replace(self, written: WrittenRows, positions: Iterable[int]) -> list[tuple[int, RowCode]]:
        """Insert or upsert rows with all columns, one by one."""
        faults = []
        for position in positions:
            key = self.keys[position]
            if self.kind in _INSERTS and self.writer.live(key) is not None:
                if self.kind not in _IGNORES:
                    faults.append((position, RowCode.ALREADY_PRESENT))
            else:
                self.writer.put(key, self.timestamp, self.index, written, position)
        return faults

    def _delete(self, positions: Iterable[int]) -> list[tuple[int, RowCode]]:
        faults = []
        for position in positions:
            key = self.keys[position]
            if self.writer.live(key) is not None:
                self.writer.put(key, self.timestamp, self.index, None, 0)
            elif self.kind not in _IGNORES:
                faults.append((position, RowCode.NOT_FOUND))
        return faults

    def _merge(self, rows: RowBatch, positions: Iterable[int]) -> list[tuple[int, RowCode]]:
        """Update rows, or upsert some of their columns. The other columns keep their value, or get their default."""
        given = {column_id: position for position, column_id in enumerate(rows.layout.ids)}
        sources = [given.get(column_id) for column_id in self.schema.layout.ids]
        values = rows.to_rows()
        merged: list[Row] = []
        written = WrittenRows.of_rows(self.schema.layout, merged)
        defaults: tuple[Any, ...] | None = None
        faults = []
        for position in positions:
            key = self.keys[position]
            live = self.writer.live(key)
            if live is not None and live[2] is not None:
                old = live[2].rows(self.schema.layout, self.writer.defaults)[live[3]]
            elif self.kind is OpKind.UPSERT:
                defaults = defaults or tuple(map(plain_default, self.new_rows.columns))
                old = defaults
            else:
                if self.kind not in _IGNORES:
                    faults.append((position, RowCode.NOT_FOUND))
                continue
            new = values[position]
            merged.append(tuple(o if s is None else new[s] for o, s in zip(old, sources, strict=True)))
            self.writer.put(key, self.timestamp, self.index, written, len(merged) - 1)
        return faults
