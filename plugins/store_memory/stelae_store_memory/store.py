"""The engine ``memory``; see the README beside it for how it works."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, ClassVar, Self

from stelae.rows.checksum import LogicalChecksum
from stelae.rows.defaults import Defaults
from stelae.spi.errors import CallerError, Corrupt, TooOld, Unsupported
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
    RowFault,
    StoreSnapshot,
    TabletStore,
    VersionedRows,
)
from stelae_store_memory.chains import Version, length, pruned
from stelae_store_memory.exchange import changes, export_versions, import_piece
from stelae_store_memory.index import KeyIndex
from stelae_store_memory.view import MemoryCursor, View
from stelae_store_memory.writer import Writer

INLINE_ROWS_MAX = 256
"""So many rows are applied on the event loop."""

_VERSION_BYTES = 200
"""What a version costs besides its values: its tuple, its key, its places in dict and index."""


class MemoryStore(TabletStore):
    """All rows of one replica in memory, with their history since the floor."""

    name: ClassVar[str] = "memory"
    capabilities: ClassVar[frozenset[str]] = frozenset({"history", "fake_files"})

    def __init__(self, schemas: Mapping[int, Schema]) -> None:
        self._schemas = dict(schemas)
        self._defaults = Defaults(schemas)
        self._chains: dict[bytes, Version] = {}
        self._index = KeyIndex()
        self._superseded: deque[tuple[int, bytes]] = deque()
        self._writer = Writer(self._chains, self._index, self._superseded, self._defaults)
        # What new views see. Replaced whole, so that a group appears at once.
        self._state = (0, OpId(0, 0), self._schemas[max(self._schemas)])
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
            raise Corrupt("the memory store keeps no manifest, and needs a schema", path=directory)
        return cls(schemas)

    @property
    def applied(self) -> OpId:
        return self._state[1]

    @property
    def schema(self) -> Schema:
        return self._state[2]

    def applies_inline(self, entries: Sequence[ApplyEntry]) -> bool:
        """Few rows: no file is ever needed."""
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

    def diff(self, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
        self._refuse_below_floor(after)
        self.schema.project(spec.columns)
        return self._diff(after, until, spec)

    def _diff(self, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
        # Pinned at the lower end: compaction must leave both ends readable.
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
            kept = pruned(newest, limit)
            self._writer.forget(length(newest) - length(kept))
            if kept is None:
                del self._chains[key]
                removed += 1
            else:
                self._chains[key] = kept
        self._index.removed(removed)
        return None

    def commit(self, edit: Edit) -> None:
        raise Unsupported("the memory store proposes no edits, so there is none to commit")

    def set_history_floor(self, timestamp: int) -> None:
        with self._lock:
            self._floor = max(self._floor, timestamp)

    def checksum(self, at: int | None = None) -> str:
        total = LogicalChecksum()
        with self._view(at) as view:
            start = 0
            while start < len(view.keys):
                rows, looked = view.rows(view.keys[start : start + BATCH_ROWS_MAX])
                total.add(rows)
                start += looked
        return total.hex()

    def memory_bytes(self) -> int:
        return self._writer.versions * _VERSION_BYTES + self._writer.values_bytes

    def snapshot(self) -> StoreSnapshot:
        raise Unsupported("the memory store has no files; use export")

    def export(self) -> Iterator[VersionedRows]:
        with self._view(None) as view:
            yield from export_versions(view, self._floor)

    def import_(self, pieces: Iterator[VersionedRows], applied: OpId) -> None:
        if self._chains or self._state[1].index:
            raise CallerError("an import needs an empty store; this one has rows or applied entries")
        timestamp = 0
        for piece in pieces:
            timestamp = import_piece(self._writer, self._schemas, piece, timestamp, applied.index)
        self._state = (timestamp, applied, self.schema)

    def close(self) -> None:
        self._chains.clear()

    def _change_schema(self, current: Schema, new: Schema) -> Schema:
        if new.key != current.key:
            raise Corrupt(f"schema version {new.version} has another key than {current.version}")
        for column in new.columns:
            before = current.by_id.get(column.id)
            if before is None and column.required:
                raise Corrupt(f"rows of before have no value for the new column {column.name!r}")
            if before is not None and before.type != column.type:
                raise Corrupt(f"column {column.name!r} was {before.type} and is {column.type} now")
        self._schemas[new.version] = new
        self._defaults.add(new)
        return new

    def _refuse_below_floor(self, timestamp: int) -> None:
        if timestamp < self._floor:
            raise TooOld(self._floor)

    def _view(self, at: int | None) -> View:
        with self._lock:
            latest, applied, schema = self._state
            timestamp = max(latest, self._floor) if at is None else at
            self._refuse_below_floor(timestamp)
            self._pin_count += 1
            pin = self._pin_count
            # A later entry may have the same timestamp: keep what stands beside it, too.
            self._pins[pin] = timestamp - 1
        keys = self._index.keys(self._chains)
        return View(self._chains, keys, schema, self._defaults, timestamp, applied.index, lambda: self._unpin(pin))

    def _unpin(self, pin: int) -> None:
        with self._lock:
            self._pins.pop(pin, None)
