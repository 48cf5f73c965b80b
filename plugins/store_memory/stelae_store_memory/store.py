"""The tablet store ``memory``. The README beside this file says how it works."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, ClassVar, Self

from stelae.rows.checksum import LogicalChecksum
from stelae.rows.defaults import Defaults
from stelae.spi.errors import CallerError, Corrupt, TooOld, Unavailable, Unsupported
from stelae.spi.ids import OpId
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.services import EngineServices
from stelae.spi.store import (
    BATCH_ROWS_MAX,
    ApplyEntry,
    ApplyResult,
    Changes,
    Cursor,
    Edit,
    FoundRows,
    RowFault,
    StoreSnapshot,
    TabletStore,
    VersionedRows,
)
from stelae_store_memory.diff_export import changes, export_versions, import_rows
from stelae_store_memory.key_index import KeyIndex
from stelae_store_memory.version_chains import Version, length, prune, visible
from stelae_store_memory.view import MemoryCursor, MemoryView
from stelae_store_memory.writer import MemoryWriter
from stelae_store_memory.written_rows import Row

INLINE_ROWS_MAX = 256
"""Up to this number of rows is applied on the event loop, or converted there for a lookup."""

_VERSION_BYTES = 200
"""Memory of a version besides its values: its tuple, its key, its entries in dict and index."""


class MemoryStore(TabletStore):
    """The rows of one replica in memory, with their history since the floor."""

    name: ClassVar[str] = "memory"
    capabilities: ClassVar[frozenset[str]] = frozenset({"history", "fake_files"})

    def __init__(self, schemas: Mapping[int, Schema]) -> None:
        self._schemas = dict(schemas)
        self._defaults = Defaults(schemas)
        self._chains: dict[bytes, Version] = {}
        self._index = KeyIndex()
        self._superseded: deque[tuple[int, bytes]] = deque()
        self._writer = MemoryWriter(self._chains, self._index, self._superseded, self._defaults)
        # Timestamp, op id and schema for new views. Replaced as a whole, so that a group becomes visible at once.
        self._state = (0, OpId(0, 0), self._schemas[max(self._schemas)])
        self._closed = False
        self._pins: dict[int, int] = {}
        self._pin_count = 0
        self._floor = 0
        self._lock = Lock()

    @classmethod
    def open(
        cls,
        directory: str,
        manifest: bytes,
        flushed: OpId,
        schemas: Mapping[int, Schema],
        config: Any,
        services: EngineServices,
    ) -> Self:
        if manifest or not schemas:
            raise Corrupt(
                "the memory store has no manifest and needs a schema, but got a manifest or no schema", path=directory
            )
        return cls(schemas)

    @property
    def applied(self) -> OpId:
        return self._state[1]

    @property
    def schema(self) -> Schema:
        return self._state[2]

    def applies_inline(self, entries: Sequence[ApplyEntry]) -> bool:
        """Return true for a few rows. No file is read in any case."""
        changes = [entry.change for entry in entries]
        return sum([0 if isinstance(change, Schema) else change.row_count for change in changes]) <= INLINE_ROWS_MAX

    def apply(self, entries: Sequence[ApplyEntry]) -> list[ApplyResult]:
        state = self._state
        results = []
        try:
            for entry in entries:
                timestamp, applied, schema = state
                faults: tuple[RowFault, ...] = ()
                if entry.op_id.index > applied.index:
                    if isinstance(entry.change, Schema):
                        schema = self._change_schema(schema, entry.change)
                    else:
                        faults = self._writer.write(entry, self._schemas, schema)
                    state = (max(timestamp, entry.timestamp), entry.op_id, schema)
                results.append(ApplyResult(entry.op_id, faults))
        finally:
            self._state = state
        return results

    def scan(self, spec: ScanSpec, at: int | None = None) -> Cursor:
        view = self._view(at)
        try:
            return MemoryCursor(view, spec)
        except BaseException:
            view.close()
            raise

    def lookup(self, keys: Sequence[bytes], at: int | None = None) -> FoundRows:
        return self._look_up(keys, at, convert_rows_max=None)

    def lookup_inline(self, keys: Sequence[bytes], at: int | None = None) -> FoundRows:
        return self._look_up(keys, at, convert_rows_max=INLINE_ROWS_MAX)

    def diff(self, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
        self._refuse_below_floor(after)
        self.schema.project(spec.columns)
        return self._diff(after, until, spec)

    def _diff(self, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
        # Pinned at the earlier time, so that compaction keeps both times readable.
        with self._view(after) as view:
            yield from changes(view, after, until, spec)

    def flush(self) -> Edit | None:
        return None

    def compact(self) -> Edit | None:
        with self._lock:
            limit = min((self._floor, *self._pins.values()))
        removed = 0
        for _ in range(BATCH_ROWS_MAX):
            if not self._superseded or self._superseded[0][0] > limit:
                break
            key = self._superseded.popleft()[1]
            newest = self._chains.get(key)
            if newest is None:
                continue
            chain = prune(newest, limit)
            self._writer.note_removed(length(newest) - length(chain))
            if chain is None:
                del self._chains[key]
                removed += 1
            else:
                self._chains[key] = chain
        self._index.removed(removed)
        return None

    def commit(self, edit: Edit) -> None:
        raise Unsupported("the memory store proposes no edits, so it cannot commit one")

    @property
    def history_floor(self) -> int:
        return self._floor

    def set_history_floor(self, timestamp: int) -> None:
        with self._lock:
            self._floor = max(self._floor, timestamp)

    def checksum(self, at: int | None = None) -> str:
        total = LogicalChecksum()
        with self._view(at) as view:
            start = 0
            while start < len(view.keys):
                rows, keys_read = view.rows(view.keys[start : start + BATCH_ROWS_MAX])
                total.add(rows)
                start += keys_read
        return total.hex()

    def memory_bytes(self) -> int:
        return self._writer.versions * _VERSION_BYTES + self._writer.values_bytes

    def snapshot(self) -> StoreSnapshot:
        raise Unsupported("the memory store has no files, so it has no snapshots; use export")

    def export(self) -> Iterator[VersionedRows]:
        with self._view(None) as view:
            yield from export_versions(view, self._floor)

    def import_(self, pieces: Iterator[VersionedRows], applied: OpId) -> None:
        if self._chains or self._state[1].index:
            raise CallerError("import needs an empty store, but this one has rows or applied entries")
        timestamp = 0
        for piece in pieces:
            timestamp = import_rows(self._writer, self._schemas, piece, timestamp, applied.index)
        self._state = (timestamp, applied, self.schema)

    def close(self) -> None:
        with self._lock:
            self._closed = True
        # Views that are open keep the versions that they read.
        self._chains, self._index = {}, KeyIndex()
        self._writer = MemoryWriter(self._chains, self._index, self._superseded, self._defaults)

    def _change_schema(self, current: Schema, new: Schema) -> Schema:
        if new.key != current.key:
            raise Corrupt(f"schema version {new.version} has another key than version {current.version}")
        for column in new.columns:
            before = current.by_id.get(column.id)
            if before is None and column.required:
                raise Corrupt(f"existing rows have no value for the new column {column.name!r}")
            if before is not None and before.type != column.type:
                raise Corrupt(f"the type of column {column.name!r} changed from {before.type} to {column.type}")
        self._schemas[new.version] = new
        self._defaults.add(new)
        return new

    def _refuse_below_floor(self, timestamp: int) -> None:
        if timestamp < self._floor:
            raise TooOld(self._floor)

    def _view(self, at: int | None) -> MemoryView:
        chains, key_index = self._chains, self._index  # Before the pin, which refuses if they are of a closed store.
        timestamp, index, schema, pin = self._pin(at)
        keys = key_index.keys(chains)
        return MemoryView(chains, keys, schema, self._defaults, timestamp, index, lambda: self._unpin(pin))

    def _pin(self, at: int | None) -> tuple[int, int, Schema, int]:
        """Pin the versions as of a time. Returns timestamp, index and schema of the view, and the number of the pin."""
        with self._lock:
            if self._closed:
                raise Unavailable("the store is closed")
            latest, applied, schema = self._state
            timestamp = max(latest, self._floor) if at is None else at
            self._refuse_below_floor(timestamp)
            self._pin_count += 1
            pin = self._pin_count
            # A later entry may have the same timestamp, so the versions before it are kept, too.
            self._pins[pin] = timestamp - 1
        return timestamp, applied.index, schema, pin

    def _look_up(self, keys: Sequence[bytes], at: int | None, convert_rows_max: int | None) -> FoundRows:
        """Return the rows of keys. Rows written together with more than ``convert_rows_max`` rows are not converted."""
        chains = self._chains  # Before the pin, as in ``_view``.
        timestamp, index, schema, pin = self._pin(at)
        rows: list[Row | None] = []
        unread: list[int] = []
        try:
            for position, key in enumerate(keys):
                version = visible(chains.get(key), timestamp, index)
                written = None if version is None else version[2]
                if version is None or written is None:
                    rows.append(None)
                elif convert_rows_max is not None and not written.is_ready(schema.layout, convert_rows_max):
                    unread.append(position)
                    rows.append(None)
                else:
                    rows.append(written.rows(schema.layout, self._defaults)[version[3]])
        finally:
            self._unpin(pin)
        return FoundRows(schema, rows, unread)

    def _unpin(self, pin: int) -> None:
        with self._lock:
            self._pins.pop(pin, None)
