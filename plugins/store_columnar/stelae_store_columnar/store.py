"""The tablet store ``columnar``. The README beside this file says how it works."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import pyarrow as pa

from stelae.rows.checksum import LogicalChecksum
from stelae.rows.defaults import Defaults
from stelae.rows.key_order import key_order
from stelae.rows.operation_encoding import row_numbers_of
from stelae.spi.errors import CallerError, Corrupt, StorageError, TooOld, Unavailable
from stelae.spi.ids import OpId
from stelae.spi.payload import WritePayload
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.services import EngineServices
from stelae.spi.store import (
    ApplyEntry,
    ApplyResult,
    Changes,
    Cursor,
    Edit,
    FoundBatch,
    FoundRows,
    RowFault,
    StoreSnapshot,
    TabletStore,
    VersionedRows,
)
from stelae_store_columnar.applier import ColumnarApplier, decode_groups
from stelae_store_columnar.block import BlockReader
from stelae_store_columnar.block_directory import BlockDirectory
from stelae_store_columnar.block_index import INDEX_VERSION
from stelae_store_columnar.block_maintenance import BlockMaintenance
from stelae_store_columnar.config import ColumnarConfig
from stelae_store_columnar.cursor import ColumnarCursor
from stelae_store_columnar.decoded_cache import DecodedCache
from stelae_store_columnar.diff_export import changes, export_versions, import_rows
from stelae_store_columnar.history_floor import HistoryFloor
from stelae_store_columnar.key_lookup import ColumnarLookup
from stelae_store_columnar.levels import Levels
from stelae_store_columnar.manifest import MANIFEST_VERSION, ColumnarManifest, decode_manifest, known_schemas
from stelae_store_columnar.memtable import ColumnarMemtable
from stelae_store_columnar.point_lookup import PointLookup
from stelae_store_columnar.prepared_writes import PreparedWrites
from stelae_store_columnar.schema_adapter import SchemaAdapter
from stelae_store_columnar.snapshot import ColumnarSnapshot
from stelae_store_columnar.sources import MustBlock, StepSize
from stelae_store_columnar.state import ColumnarState
from stelae_store_columnar.view import ColumnarView

INLINE_ROWS_MAX = 256
"""Up to this number of rows is applied on the event loop, which takes less time than a worker needs to wake up."""

INLINE_SCAN_ROWS_MAX = 256
"""A scan of up to this number of rows in memory runs on the event loop. It takes less than a millisecond."""

INLINE_MERGE_ROWS_MAX = 4096
"""A worker merges chunks with more rows than this in all."""

IMPORT_BYTES = 64 << 20
"""Memory that an import uses before it writes blocks."""


class ColumnarStore(TabletStore):
    """The rows of one replica: recent versions in memory, older ones in Parquet blocks."""

    name: ClassVar[str] = "columnar"
    capabilities: ClassVar[frozenset[str]] = frozenset({"durable_flush", "files", "history", "fake_files"})
    files_format: ClassVar[str] = f"{MANIFEST_VERSION}.{INDEX_VERSION}"
    Config: ClassVar[type[Any]] = ColumnarConfig

    def __init__(
        self,
        directory: str,
        services: EngineServices,
        config: ColumnarConfig,
        schemas: dict[int, Schema],
        manifest: ColumnarManifest,
    ) -> None:
        self._path = directory
        self._files = files = services.files
        self._schemas = schemas
        self._defaults = Defaults(schemas)
        schema = schemas[manifest.schema_version or max(schemas)]
        self._order = key_order(schema)
        self._step_size = StepSize(self._order, config.row_group_rows)
        cache = services.shared.part(DecodedCache, lambda: DecodedCache(config.cache_bytes))
        self._reader = BlockReader(files, cache.share(), self._order, schema.key_layout)
        self._directory = BlockDirectory(files, directory, manifest.next_number)
        self._upkeep = BlockMaintenance(self._directory, self._reader, config, schema)
        self._memory = ColumnarMemtable()
        self._prepared: PreparedWrites | None = None
        self._history = HistoryFloor(manifest.floor, config.key_history_bytes_max, directory)
        self._failed = ""
        self._closed = False
        self._schema_guessed = not manifest.schema_version
        """True if nothing was ever applied, so that the schema in force is only assumed."""
        self._state = ColumnarState(
            manifest.stamp, OpId(0, 0), schema, SchemaAdapter(schema, schemas), (), self._memory.sets, Levels()
        )

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
        found = decode_manifest(manifest, directory)
        known = known_schemas(found, schemas)
        if not known or (found.schema_version and found.schema_version not in known):
            raise Corrupt("the schema of the rows is not in the manifest or the superblock", path=directory)
        store = cls(directory, services, config, known, found)
        levels = store._upkeep.opened(found, manifest, flushed)
        store._publish(applied=flushed, levels=levels)
        return store

    @property
    def applied(self) -> OpId:
        return self._state.applied

    @property
    def schema(self) -> Schema:
        return self._state.schema

    def apply(self, entries: Sequence[ApplyEntry]) -> list[ApplyResult]:
        self._refuse_failed()
        results = []
        state = self._state
        try:
            for entry in entries:
                faults: tuple[RowFault, ...] = ()
                if entry.op_id.index > state.applied.index:
                    if isinstance(entry.change, Schema):
                        after = self._changed_schema(state, entry.change)
                    else:
                        after = self._guessed_schema(state, entry.change)
                        faults = self._write(entry, entry.change, after)
                    self._schema_guessed = False
                    state = self._next_state(after, stamp=max(state.stamp, entry.timestamp), applied=entry.op_id)
                results.append(ApplyResult(entry.op_id, faults))
        finally:
            self._state = state  # Once, so that readers see the whole group, or the entries before one that failed.
            self._prepared = None  # It holds rows in memory and blocks, which may be replaced at any time.
        return results

    def applies_inline(self, entries: Sequence[ApplyEntry]) -> bool:
        """Return true for a few rows for which no block is read and no large chunks are merged."""
        self._prepared = None
        if self._memory.newest.longest_range > INLINE_MERGE_ROWS_MAX:
            return False
        rows, state = 0, self._state
        for entry in entries:
            if isinstance(entry.change, Schema):
                return False
            rows += entry.change.row_count
        if rows > INLINE_ROWS_MAX or not self._memory.merges_within(rows, INLINE_MERGE_ROWS_MAX):
            return False
        self._prepared = PreparedWrites(self._memory, state.levels, self._schemas, self._order)
        return self._prepared.need_no_file(entries, state.schema)

    def scan(self, spec: ScanSpec, at: int | None = None) -> Cursor:
        return ColumnarCursor(self._view(at), spec)

    def scan_inline(self, spec: ScanSpec, at: int | None = None) -> Cursor | None:
        if spec.limit is None or spec.limit > INLINE_SCAN_ROWS_MAX or spec.predicates:
            return None
        cursor = ColumnarCursor(self._view(at), spec, may_block=False)
        try:
            cursor.read_ahead()
        except MustBlock:
            cursor.close()
            return None
        return cursor

    def lookup(self, keys: Sequence[bytes], at: int | None = None) -> FoundRows | FoundBatch:
        return self._look_up(keys, at, inline=False)

    def lookup_inline(self, keys: Sequence[bytes], at: int | None = None) -> FoundRows | FoundBatch:
        return self._look_up(keys, at, inline=True)

    def diff(self, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
        view = self._view(None)
        self._refuse_below_floor(after)
        view.schema.project(spec.columns)
        return changes(view, after, until, spec)

    def flush(self) -> Edit | None:
        self._refuse_failed()
        state = self._state
        levels = self._upkeep.flushed(state, self._history)
        self._memory = ColumnarMemtable()
        self._publish(levels=levels)
        self._upkeep.note_flush(state.applied, state.schema)
        _return_free_memory()
        return self._propose()

    def compact(self) -> Edit | None:
        self._refuse_failed()
        self._drop_memory_garbage()
        state = self._state
        levels = self._upkeep.compact(state, self._history)
        if levels is None:
            return None
        self._publish(levels=levels)
        _return_free_memory()
        return self._propose()

    def commit(self, edit: Edit) -> None:
        self._upkeep.on_commit(edit)

    @property
    def history_floor(self) -> int:
        return self._history.timestamp

    def set_history_floor(self, timestamp: int) -> None:
        self._history.raise_to(timestamp)

    def checksum(self, at: int | None = None) -> str:
        total = LogicalChecksum()
        with self.scan(ScanSpec(), at) as cursor:
            for batch in cursor:
                total.add(batch.to_rows())
        return total.hex()

    def memory_bytes(self) -> int:
        return self._memory.size_bytes

    def split_keys(self, key_from: bytes | None, key_until: bytes | None, bytes_max: int) -> list[bytes]:
        low = None if key_from is None else self._order.bound(key_from)
        high = None if key_until is None else self._order.bound(key_until)
        return self._view(None).split_keys(low, high, bytes_max)

    def snapshot(self) -> StoreSnapshot:
        edit, blocks = self._upkeep.committed_blocks()
        return ColumnarSnapshot(self._files, self._directory, edit, blocks)

    def export(self) -> Iterator[VersionedRows]:
        return export_versions(self._view(None), self._history.timestamp)

    def import_(self, pieces: Iterator[VersionedRows], applied: OpId) -> None:
        state = self._state
        if len(self._memory) or state.levels.blocks or state.applied.index:
            raise CallerError("import needs an empty store, but this one has rows or applied entries")
        stamp = state.stamp
        for piece in pieces:
            stamp = import_rows(self._memory, self._order, self._schemas, piece, stamp)
            if self._memory.size_bytes >= IMPORT_BYTES:
                self._publish()
                levels = self._upkeep.flushed(self._state, self._history)
                self._memory = ColumnarMemtable()
                self._publish(levels=levels)
        self._schema_guessed = False
        self._publish(stamp=stamp, applied=applied)

    def close(self) -> None:
        self._closed = True  # Before the rows go: see ``_refuse_closed``.
        self._failed = "the store is closed"
        self._directory.close()
        self._memory = ColumnarMemtable()
        self._publish(levels=Levels())
        self._reader.cache.clear()

    def _write(self, entry: ApplyEntry, payload: WritePayload, state: ColumnarState) -> tuple[RowFault, ...]:
        prepared = self._prepared
        if prepared is None or prepared.levels is not state.levels:
            groups = decode_groups(payload, self._schemas, self._order)
            lookup = ColumnarLookup(self._memory, state.levels, {})
        else:
            groups = prepared.groups(entry.op_id, payload)
            lookup = ColumnarLookup(self._memory, state.levels, prepared.in_blocks)
        new_rows = self._defaults.layout(state.schema, self._schemas[payload.schema_version])
        applier = ColumnarApplier(
            self._memory, lookup, state.schema, new_rows, state.adapter.all_types, entry.timestamp
        )
        try:
            return applier.write(groups, row_numbers_of(payload, entry.skip))
        except BaseException as error:
            # A part of the entry may be in memory. It must be neither visible nor flushed.
            self._failed = f"entry {entry.op_id} was applied only in part: {error}"
            raise

    def _guessed_schema(self, state: ColumnarState, payload: WritePayload) -> ColumnarState:
        """Return the state with the schema in force for a payload.

        A log that is replayed from its beginning may have been written under an earlier schema version."""
        schema = self._schemas.get(payload.schema_version)
        if not self._schema_guessed or schema is None or schema is state.schema:
            return state
        return self._next_state(state, schema=schema)

    def _changed_schema(self, state: ColumnarState, new: Schema) -> ColumnarState:
        current = state.schema
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
        return self._next_state(state, schema=new)

    def _publish(self, *, stamp: int | None = None, applied: OpId | None = None, levels: Levels | None = None) -> None:
        """Publish a new state, so that readers see all changes at the same time."""
        self._state = self._next_state(self._state, stamp=stamp, applied=applied, levels=levels)

    def _next_state(
        self,
        old: ColumnarState,
        *,
        stamp: int | None = None,
        applied: OpId | None = None,
        schema: Schema | None = None,
        levels: Levels | None = None,
    ) -> ColumnarState:
        """Return a state with some changes and what is in memory now."""
        return ColumnarState(
            old.stamp if stamp is None else stamp,
            old.applied if applied is None else applied,
            old.schema if schema is None else schema,
            old.adapter if schema is None else SchemaAdapter(schema, self._schemas),
            self._memory.chunks,
            self._memory.sets,
            old.levels if levels is None else levels,
        )

    def _view(self, at: int | None) -> ColumnarView:
        # The state is read before the floor. So versions that the state lacks were dropped below this floor.
        view = ColumnarView(self._state, at, self._step_size, self._reader.cache)
        self._refuse_closed()
        if at is not None:
            self._refuse_below_floor(at)
        return view

    def _look_up(self, keys: Sequence[bytes], at: int | None, *, inline: bool) -> FoundRows | FoundBatch:
        # The state is read before the floor, as in ``_view``.
        lookup = PointLookup(self._state, at, self._order, self._reader.cache, inline=inline)
        self._refuse_closed()
        if at is not None:
            self._refuse_below_floor(at)
        return lookup.find(keys)

    def _refuse_closed(self) -> None:
        """Raise ``Unavailable`` if the store is closed. A state that was read before this call has all of its rows."""
        if self._closed:
            raise Unavailable(f"the store in {self._path} is closed")

    def _refuse_below_floor(self, timestamp: int) -> None:
        if timestamp < self._history.timestamp:
            raise TooOld(self._history.timestamp)

    def _drop_memory_garbage(self) -> None:
        """Drop the versions below the floor from memory once they are half of all versions in it."""
        memory = self._memory
        if 0 < len(memory) <= 2 * memory.garbage(self._history.timestamp):
            self._memory = self._upkeep.without_garbage(memory, self._state, self._history)
            self._publish()

    def _refuse_failed(self) -> None:
        if self._failed:
            raise StorageError(self._failed, path=self._path)

    def _propose(self) -> Edit | None:
        state = self._state
        return self._upkeep.propose(state.levels, self._schemas, state.stamp, self._history.timestamp)


def _return_free_memory() -> None:
    """Return what a flush or merge has freed to the system.

    The threads of a pool take turns, and Arrow's allocator keeps what each of them freed: a node with ten tablets would
    hold the memory of ten merges."""
    pa.default_memory_pool().release_unused()
