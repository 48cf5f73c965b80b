"""The engine ``columnar``; see the README beside it for how it works."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

from stelae.rows.checksum import LogicalChecksum
from stelae.rows.defaults import Defaults
from stelae.rows.key_order import key_order
from stelae.rows.operations import rows_of
from stelae.spi.errors import CallerError, Corrupt, StorageError, TooOld
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
    RowFault,
    StoreSnapshot,
    TabletStore,
    VersionedRows,
)
from stelae_store_columnar.applying import Applier, overwrites, readable
from stelae_store_columnar.block import BlockReader
from stelae_store_columnar.cache import DecodedCache
from stelae_store_columnar.config import ColumnarConfig
from stelae_store_columnar.cursor import ColumnarCursor
from stelae_store_columnar.directory import BlockDirectory
from stelae_store_columnar.exchange import changes, export_versions, import_piece
from stelae_store_columnar.fitting import Fitting
from stelae_store_columnar.levels import Levels
from stelae_store_columnar.lookup import Lookup
from stelae_store_columnar.manifest import Manifest, decode_manifest, known_schemas
from stelae_store_columnar.memory import MemoryPart
from stelae_store_columnar.parts import Cut
from stelae_store_columnar.snapshot import ColumnarSnapshot
from stelae_store_columnar.state import State
from stelae_store_columnar.upkeep import Upkeep
from stelae_store_columnar.view import View

INLINE_ROWS_MAX = 256
"""So many rows are applied on the event loop: in less time than handing them to a worker and back takes."""

INLINE_MERGE_ROWS_MAX = 4096
"""Chunks of more rows in all are put together by a worker."""

IMPORT_BYTES = 64 << 20
"""What an import holds in memory before it writes blocks."""


class ColumnarStore(TabletStore):
    """Rows of one replica: recent versions in memory, older ones in Parquet blocks."""

    name: ClassVar[str] = "columnar"
    capabilities: ClassVar[frozenset[str]] = frozenset({"durable_flush", "files", "history", "fake_files"})
    Config: ClassVar[type[Any]] = ColumnarConfig

    def __init__(
        self, directory: str, files: Any, config: ColumnarConfig, schemas: dict[int, Schema], manifest: Manifest
    ) -> None:
        self._path = directory
        self._files = files
        self._schemas = schemas
        self._defaults = Defaults(schemas)
        schema = schemas[manifest.schema_version or max(schemas)]
        self._order = key_order(schema)
        self._cut = Cut(self._order, config.row_group_rows)
        self._reader = BlockReader(files, DecodedCache(config.cache_bytes), self._order, schema.key_layout)
        self._directory = BlockDirectory(files, directory, manifest.next_number)
        self._upkeep = Upkeep(self._directory, self._reader, config, schema)
        self._memory = MemoryPart()
        self._floor = manifest.floor
        self._failed = ""
        self._unbegun = not manifest.schema_version
        """Nothing was ever applied, so that the schema in force is only guessed."""
        self._state = State(
            manifest.stamp, OpId(0, 0), schema, Fitting(schema, schemas), (), self._memory.sets, Levels()
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
            raise Corrupt("the columnar store needs the schema of its rows", path=directory)
        store = cls(directory, services.files, config, known, found)
        levels = store._upkeep.opened(found, manifest, flushed)
        store._become(applied=flushed, levels=levels)
        return store

    @property
    def applied(self) -> OpId:
        return self._state.applied

    @property
    def schema(self) -> Schema:
        return self._state.schema

    def apply(self, entries: Sequence[ApplyEntry]) -> list[ApplyResult]:
        results = []
        for entry in entries:
            faults: tuple[RowFault, ...] = ()
            if entry.op_id.index > self._state.applied.index:
                if isinstance(entry.change, Schema):
                    self._change_schema(entry.change)
                else:
                    faults = self._write(entry, entry.change)
                self._unbegun = False
                stamp = max(self._state.stamp, entry.timestamp)
                self._become(stamp=stamp, applied=entry.op_id)
            results.append(ApplyResult(entry.op_id, faults))
        return results

    def applies_inline(self, entries: Sequence[ApplyEntry]) -> bool:
        """Few rows, for which no block is looked into and no large chunks are put together."""
        if self._memory.newest.longest_run > INLINE_MERGE_ROWS_MAX:
            return False
        rows, schema, blocks = 0, self._state.schema, bool(self._state.levels.sources)
        for entry in entries:
            if isinstance(entry.change, Schema) or (blocks and not overwrites(entry.change, schema)):
                return False
            rows += entry.change.row_count
        return rows <= INLINE_ROWS_MAX and self._memory.settles_within(rows, INLINE_MERGE_ROWS_MAX)

    def scan(self, spec: ScanSpec, at: int | None = None) -> Cursor:
        return ColumnarCursor(self._view(at), spec)

    def diff(self, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
        view = self._view(None)
        self._refuse_below_floor(after)
        view.schema.project(spec.columns)
        return changes(view, after, until, spec)

    def flush(self) -> Edit | None:
        state = self._state
        levels = self._upkeep.flushed(state, self._floor)
        self._memory = MemoryPart()
        self._become(levels=levels)
        self._upkeep.flushed_at(state.applied, state.schema)
        return self._propose()

    def compact(self) -> Edit | None:
        self._forget_in_memory()
        state = self._state
        levels = self._upkeep.compacted(state, self._floor)
        if levels is None:
            return None
        self._become(levels=levels)
        return self._propose()

    def commit(self, edit: Edit) -> None:
        self._upkeep.committed(edit)

    def set_history_floor(self, timestamp: int) -> None:
        self._floor = max(self._floor, timestamp)

    def checksum(self, at: int | None = None) -> str:
        total = LogicalChecksum()
        with self.scan(ScanSpec(), at) as cursor:
            for batch in cursor:
                total.add(batch.to_rows())
        return total.hex()

    def memory_bytes(self) -> int:
        return self._memory.size_bytes

    def snapshot(self) -> StoreSnapshot:
        edit, names = self._upkeep.committed_files()
        return ColumnarSnapshot(self._files, self._path, self._directory, edit, names)

    def export(self) -> Iterator[VersionedRows]:
        return export_versions(self._view(None), self._floor)

    def import_(self, pieces: Iterator[VersionedRows], applied: OpId) -> None:
        state = self._state
        if len(self._memory) or state.levels.blocks or state.applied.index:
            raise CallerError("an import needs an empty store; this one has rows or applied entries")
        stamp = state.stamp
        for piece in pieces:
            stamp = import_piece(self._memory, self._order, self._schemas, piece, stamp)
            if self._memory.size_bytes >= IMPORT_BYTES:
                self._become()
                levels = self._upkeep.flushed(self._state, self._floor)
                self._memory = MemoryPart()
                self._become(levels=levels)
        self._unbegun = False
        self._become(stamp=stamp, applied=applied)

    def close(self) -> None:
        self._failed = "the store is closed"
        self._memory = MemoryPart()
        self._become(levels=Levels())

    def _write(self, entry: ApplyEntry, payload: WritePayload) -> tuple[RowFault, ...]:
        if self._failed:
            raise StorageError(self._failed, path=self._path)
        groups = readable(payload, self._schemas, self._order)
        if self._unbegun and payload.schema_version != self._state.schema.version:
            # The log is replayed from its beginning, where a later version than this one was not known yet.
            self._become(schema=self._schemas[payload.schema_version])
        state = self._state
        lookup = Lookup(self._memory, state.levels)
        new_rows = self._defaults.layout(state.schema, self._schemas[payload.schema_version])
        applier = Applier(self._memory, lookup, state.schema, new_rows, state.fitting.all_types, entry.timestamp)
        try:
            return applier.write(groups, rows_of(payload, entry.skip))
        except BaseException as error:
            # Some of the entry may be in memory: it must neither show nor be flushed.
            self._failed = f"entry {entry.op_id} was left half applied: {error}"
            raise

    def _change_schema(self, new: Schema) -> None:
        current = self._state.schema
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
        self._become(schema=new)

    def _become(
        self,
        *,
        stamp: int | None = None,
        applied: OpId | None = None,
        schema: Schema | None = None,
        levels: Levels | None = None,
    ) -> None:
        """Show new readers what has changed, all of it at once."""
        old = self._state
        self._state = State(
            old.stamp if stamp is None else stamp,
            old.applied if applied is None else applied,
            old.schema if schema is None else schema,
            old.fitting if schema is None else Fitting(schema, self._schemas),
            self._memory.chunks,
            self._memory.sets,
            old.levels if levels is None else levels,
        )

    def _view(self, at: int | None) -> View:
        # First the state, then the floor: what the state lacks was dropped behind a floor that holds already.
        view = View(self._state, at, self._cut)
        if at is not None:
            self._refuse_below_floor(at)
        return view

    def _refuse_below_floor(self, timestamp: int) -> None:
        if timestamp < self._floor:
            raise TooOld(self._floor)

    def _forget_in_memory(self) -> None:
        """Let go of versions behind the floor, once they are half of what is in memory."""
        memory = self._memory
        if 0 < len(memory) <= 2 * memory.garbage(self._floor):
            self._memory = self._upkeep.without_garbage(memory, self._state, self._floor)
            self._become()

    def _propose(self) -> Edit | None:
        if self._failed:
            raise StorageError(self._failed, path=self._path)
        state = self._state
        return self._upkeep.propose(state.levels, self._schemas, state.stamp, self._floor)
