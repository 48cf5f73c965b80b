"""Applying rows: what each kind of operation does to the chains."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Any

from stelae.rows.defaults import Defaults
from stelae.rows.keys import encode_keys
from stelae.rows.operations import rows_of
from stelae.spi.errors import Corrupt, SchemaMismatch
from stelae.spi.payload import OpGroup, WritePayload
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout, Schema
from stelae.spi.store import ApplyEntry, RowFault
from stelae.spi.write import OpKind, RowCode
from stelae_store_memory.chains import Version
from stelae_store_memory.index import KeyIndex
from stelae_store_memory.parts import Part, Row, plain_default

_INSERTS = frozenset({OpKind.INSERT, OpKind.INSERT_IGNORE})
_UPDATES = frozenset({OpKind.UPDATE, OpKind.UPDATE_IGNORE})
_IGNORES = frozenset({OpKind.INSERT_IGNORE, OpKind.UPDATE_IGNORE, OpKind.DELETE_IGNORE})


class Writer:
    """Writes versions; called by one thread at a time. ``versions`` counts those in the chains."""

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
        """Apply the rows of an entry, but for those of skipped operations; return the faults.

        Raises:
            Corrupt: rows that cannot be read; nothing of the entry was applied.
        """
        payload = entry.change
        assert isinstance(payload, WritePayload)
        written = schemas.get(payload.schema_version)
        if written is None:
            raise Corrupt(f"rows of schema version {payload.schema_version}, which was never applied")
        readable = [self._read(group, written) for group in payload.groups]
        skip = rows_of(payload, entry.skip)
        new_rows = self.defaults.layout(current, written)
        faults: list[RowFault] = []
        start = 0
        for group, (rows, keys) in zip(payload.groups, readable, strict=True):
            places: Iterable[int] = range(group.row_count)
            if skip:
                places = [place for place in places if start + place not in skip]
            step = _Step(self, entry, current, new_rows, group, keys)
            found = step.run(rows, places)
            faults += [RowFault(start + place, code) for place, code in found]
            start += group.row_count
        return tuple(faults)

    def put(self, key: bytes, timestamp: int, index: int, part: Part | None, row: int) -> None:
        """Write one version; ``part`` is ``None`` for a deletion."""
        previous = self._chains.get(key)
        if previous is not None or part is None:
            self._superseded.append((timestamp, key))
        # Before the index has the key: a scan that tidies the index drops keys without a chain.
        self._chains[key] = (timestamp, index, part, row, previous)
        if previous is None:
            self._index.add([key])
        self.versions += 1
        self.values_bytes += part.row_bytes if part is not None else 0

    def put_new(self, keys: list[bytes], timestamp: int, index: int, part: Part) -> bool:
        """Write all rows of a part if none of their keys exists, and each stands once."""
        if not self._chains.keys().isdisjoint(keys) or len({*keys}) != len(keys):
            return False
        versions = zip(repeat(timestamp), repeat(index), repeat(part), range(len(keys)), repeat(None))
        self._chains.update(zip(keys, versions, strict=False))
        self._index.add(keys)
        self.versions += len(keys)
        self.values_bytes += len(keys) * part.row_bytes
        return True

    def forget(self, count: int) -> None:
        """Take note that versions left the chains; their values were of average size."""
        self.values_bytes -= self.values_bytes * count // max(1, self.versions)
        self.versions -= count

    def live(self, key: bytes) -> Version | None:
        """Return the newest version of a row, unless it is a deletion."""
        newest = self._chains.get(key)
        return newest if newest is not None and newest[2] is not None else None

    def _read(self, group: OpGroup, schema: Schema) -> tuple[RowBatch, list[bytes]]:
        try:
            rows = group.rows(schema)
            return rows, encode_keys(schema, rows)
        except (SchemaMismatch, ValueError) as error:
            raise Corrupt(f"rows without the key of schema version {schema.version}: {error}") from error


class _Step:
    """One group being applied.

    ``new_rows``: the columns of ``schema``, with the defaults of new rows that leave some of them out."""

    def __init__(
        self, writer: Writer, entry: ApplyEntry, schema: Schema, new_rows: Layout, group: OpGroup, keys: list[bytes]
    ) -> None:
        self.writer = writer
        self.timestamp = entry.timestamp
        self.index = entry.op_id.index
        self.schema = schema
        self.new_rows = new_rows
        self.kind = group.kind
        self.row_bytes = len(group.body) // max(1, group.row_count)
        self.keys = keys

    def run(self, rows: RowBatch, places: Iterable[int]) -> list[tuple[int, RowCode]]:
        if self.kind in (OpKind.DELETE, OpKind.DELETE_IGNORE):
            return self._delete(places)
        if self.kind in _UPDATES:
            return self._merge(rows, places)
        whole = set(rows.layout.ids) >= {c.id for c in self.schema.columns}
        if self.kind is OpKind.UPSERT and not whole:
            return self._merge(rows, places)
        part = Part(RowBatch(self.schema.layout, rows.select(self.new_rows).arrow), self.row_bytes)
        if isinstance(places, range) and self.writer.put_new(self.keys, self.timestamp, self.index, part):
            return []
        return self._replace(part, places)

    def _replace(self, part: Part, places: Iterable[int]) -> list[tuple[int, RowCode]]:
        """Insert or upsert whole rows one by one."""
        faults = []
        for place in places:
            key = self.keys[place]
            if self.kind in _INSERTS and self.writer.live(key) is not None:
                if self.kind not in _IGNORES:
                    faults.append((place, RowCode.ALREADY_PRESENT))
            else:
                self.writer.put(key, self.timestamp, self.index, part, place)
        return faults

    def _delete(self, places: Iterable[int]) -> list[tuple[int, RowCode]]:
        faults = []
        for place in places:
            key = self.keys[place]
            if self.writer.live(key) is not None:
                self.writer.put(key, self.timestamp, self.index, None, 0)
            elif self.kind not in _IGNORES:
                faults.append((place, RowCode.NOT_FOUND))
        return faults

    def _merge(self, rows: RowBatch, places: Iterable[int]) -> list[tuple[int, RowCode]]:
        """Update rows, or upsert some columns: what is not given stays, or takes its default."""
        given = {column_id: place for place, column_id in enumerate(rows.layout.ids)}
        sources = [given.get(column_id) for column_id in self.schema.layout.ids]
        values = rows.to_rows()
        merged: list[Row] = []
        part = Part.of_rows(self.schema.layout, merged)
        defaults: tuple[Any, ...] | None = None
        faults = []
        for place in places:
            key = self.keys[place]
            live = self.writer.live(key)
            if live is not None and live[2] is not None:
                old = live[2].rows(self.schema.layout, self.writer.defaults)[live[3]]
            elif self.kind is OpKind.UPSERT:
                defaults = defaults or tuple(map(plain_default, self.new_rows.columns))
                old = defaults
            else:
                if self.kind not in _IGNORES:
                    faults.append((place, RowCode.NOT_FOUND))
                continue
            new = values[place]
            merged.append(tuple(o if s is None else new[s] for o, s in zip(old, sources, strict=True)))
            self.writer.put(key, self.timestamp, self.index, part, len(merged) - 1)
        return faults
