"""The tablet store ``lmdb``. The README beside this file says how it works."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from threading import Lock
from typing import Any, ClassVar, Self

from stelae.rows.defaults import Defaults
from stelae.rows.operation_encoding import row_numbers_of
from stelae.spi.errors import CallerError, Corrupt, Full, TooOld, Unsupported
from stelae.spi.ids import OpId
from stelae.spi.payload import WritePayload
from stelae.spi.rows import RowBatch
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
from stelae_shared.lmdb_files.library import EXTRA, MODULE, library
from stelae_store_lmdb.applier import LmdbApplier, decode_groups
from stelae_store_lmdb.config import LmdbStoreConfig
from stelae_store_lmdb.cursor import LmdbCursor
from stelae_store_lmdb.diff_export import changes, export_versions, import_rows, logical_checksum
from stelae_store_lmdb.environment import WANTED_BY
from stelae_store_lmdb.manifest import LmdbManifest, decode_manifest, known_schemas
from stelae_store_lmdb.memtable import LmdbMemtable
from stelae_store_lmdb.opening import StoreDirectory
from stelae_store_lmdb.store_environment import StoreEnvironment
from stelae_store_lmdb.tree import RowTree
from stelae_store_lmdb.values import RowReader
from stelae_store_lmdb.view import LmdbView, RowLayers

IMPORT_BYTES = 64 << 20
"""Memory that an import uses before it writes to the environment."""


class LmdbStore(TabletStore):
    """The rows of one replica: recent versions in memory, older ones in an LMDB environment of its own."""

    name: ClassVar[str] = "lmdb"
    capabilities: ClassVar[frozenset[str]] = frozenset({"durable_flush", "history"})
    Config: ClassVar[type[Any]] = LmdbStoreConfig
    optional_modules: ClassVar[dict[str, str]] = {MODULE: EXTRA}

    def __init__(
        self,
        environment: StoreEnvironment,
        floor: int,
        schemas: dict[int, Schema],
        manifest: LmdbManifest,
        applied: OpId,
    ):
        self._environment = environment
        self._schemas = schemas
        self._defaults = Defaults(schemas)
        self._layers = RowLayers(environment.env)
        # Timestamp, op id and schema for new views. Replaced as a whole, so that a group becomes visible at once.
        self._state = (manifest.stamp, applied, schemas[manifest.schema_version or max(schemas)])
        self._reader = RowReader(self._state[2].layout, schemas, self._defaults)
        self._lookup_reader = self._reader
        self._schema_guessed = not manifest.schema_version
        """True if nothing was ever applied, so that the schema in force is only assumed."""
        self._floor = floor
        self._pins: dict[int, int] = {}
        self._pin_count = 0
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
        library(WANTED_BY)
        found = decode_manifest(manifest, directory)
        known = known_schemas(found, schemas)
        if not known or (found.schema_version and found.schema_version not in known):
            raise Corrupt("the schema of the rows is not in the manifest or the superblock", path=directory)
        environment = StoreEnvironment(StoreDirectory(services.files, directory, config), found, flushed)
        floor = max(found.floor, environment.open())
        return cls(environment, floor, known, found, flushed)

    @property
    def applied(self) -> OpId:
        return self._state[1]

    @property
    def schema(self) -> Schema:
        return self._state[2]

    def apply(self, entries: Sequence[ApplyEntry]) -> list[ApplyResult]:
        self._environment.check()
        state = self._state
        results = []
        env = self._environment.env
        try:
            with nullcontext() if env is None else env.read() as txn:
                tree = None if env is None else RowTree(txn, env.path)
                for entry in entries:
                    faults: tuple[RowFault, ...] = ()
                    if entry.op_id.index > state[1].index:
                        timestamp, _, schema = state
                        if isinstance(entry.change, Schema):
                            schema = self._changed_schema(schema, entry.change)
                        else:
                            schema = self._schema_for(entry.change, schema)
                            faults = self._write(entry, entry.change, schema, tree)
                        self._schema_guessed = False
                        state = (max(timestamp, entry.timestamp), entry.op_id, schema)
                    results.append(ApplyResult(entry.op_id, faults))
        finally:
            self._state = state
        return results

    def scan(self, spec: ScanSpec, at: int | None = None) -> Cursor:
        view = self._view(at)
        try:
            return LmdbCursor(view, spec)
        except BaseException:
            view.close()
            raise

    def lookup(self, keys: Sequence[bytes], at: int | None = None) -> FoundRows:
        return self._look_up(keys, at, in_memory_only=False)

    def lookup_inline(self, keys: Sequence[bytes], at: int | None = None) -> FoundRows:
        return self._look_up(keys, at, in_memory_only=True)

    def _look_up(self, keys: Sequence[bytes], at: int | None, *, in_memory_only: bool) -> FoundRows:
        with self._view(at) as view:
            layout = view.schema.layout
            reader = self._lookup_reader
            if reader.layout is not layout:
                reader = self._lookup_reader = view.reader(layout)
            rows, unread = view.find(keys, reader, in_memory_only=in_memory_only)
        if any(column.data_type.name == "decimal" for column in layout.columns):
            # The environment has decimals as text.
            plain = iter(RowBatch.from_equal_rows(layout, [row for row in rows if row is not None]).to_rows())
            rows = [None if row is None else next(plain) for row in rows]
        return FoundRows(view.schema, rows, unread)

    def diff(self, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
        self._refuse_below_floor(after)
        self.schema.project(spec.columns)
        return self._diff(after, until, spec)

    def _diff(self, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
        # Pinned at the earlier time, so that compaction keeps both times readable.
        with self._view(after) as view:
            yield from changes(view, after, until, spec)

    def flush(self) -> Edit | None:
        self._environment.check()
        stamp, applied, schema = self._state
        if applied == self._environment.flushed:
            return None
        transactions = self._move_to_environment()
        with suppress(Full):  # The rows are durable, so the flush need not fail. Later calls compact.
            self._environment.compact(self._compaction_limit(), self._floor, 1 + transactions)
        return self._environment.propose(applied, schema, self._schemas, stamp, self._floor)

    def compact(self) -> Edit | None:
        limit, env = self._compaction_limit(), self._environment.env
        with nullcontext() if env is None else env.read() as txn:
            tree = None if env is None else RowTree(txn, env.path)
            self._layers.memory.drop_superseded(
                limit, BATCH_ROWS_MAX, lambda key: tree is not None and tree.newest(key) is not None
            )
        return self._environment.compact(limit, self._floor, 1)

    def commit(self, edit: Edit) -> None:
        self._environment.on_commit(edit)

    @property
    def history_floor(self) -> int:
        return self._floor

    def set_history_floor(self, timestamp: int) -> None:
        with self._lock:
            self._floor = max(self._floor, timestamp)

    def checksum(self, at: int | None = None) -> str:
        with self._view(at) as view:
            return logical_checksum(view)

    def memory_bytes(self) -> int:
        return self._layers.memory.size_bytes

    def snapshot(self) -> StoreSnapshot:
        raise Unsupported("the lmdb store changes its file in place, so it has no snapshots of files; use export")

    def export(self) -> Iterator[VersionedRows]:
        floor = self._floor
        # Pinned at the floor, so that compaction keeps the whole history.
        with self._view(floor) as view:
            yield from export_versions(view, floor)

    def import_(self, batches: Iterator[VersionedRows], applied: OpId) -> None:
        stamp, before, schema = self._state
        if self._layers.memory.chains or self._environment.env is not None or before.index:
            raise CallerError("import needs an empty store, but this one has rows or applied entries")
        for batch in batches:
            stamp = import_rows(self._layers.memory, self._schemas, batch, stamp, applied.index)
            if self._layers.memory.size_bytes >= IMPORT_BYTES:
                self._move_to_environment()
        self._schema_guessed = False
        self._state = (stamp, applied, schema)

    def close(self) -> None:
        self._layers.close()
        self._environment.close()

    def _move_to_environment(self) -> int:
        """Write the memtable to the environment, and empty it. Returns the number of transactions."""
        transactions = self._environment.flush(self._layers.memory, self._floor)
        # First the environment, then the empty memtable, because readers look into the memtable first.
        self._layers.env = self._environment.env
        self._layers.memory = LmdbMemtable()
        return transactions

    def _write(
        self, entry: ApplyEntry, payload: WritePayload, schema: Schema, tree: RowTree | None
    ) -> tuple[RowFault, ...]:
        groups = decode_groups(payload, self._schemas)
        new_rows = self._defaults.layout(schema, self._schemas[payload.schema_version])
        memory = self._layers.memory
        if self._reader.layout is not schema.layout:
            self._reader = RowReader(schema.layout, self._schemas, self._defaults)
        applier = LmdbApplier(memory, tree, schema, new_rows, self._reader)
        faults = applier.write(groups, row_numbers_of(payload, entry.skip))
        for key, contents in applier.staged.items():
            memory.put(key, entry.timestamp, entry.op_id.index, contents)
        return faults

    def _schema_for(self, payload: WritePayload, current: Schema) -> Schema:
        """Return the schema in force for a payload.

        A log that is replayed from its beginning may have been written under an earlier schema version."""
        return self._schemas.get(payload.schema_version, current) if self._schema_guessed else current

    def _changed_schema(self, current: Schema, new: Schema) -> Schema:
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

    def _compaction_limit(self) -> int:
        """Return the timestamp below which no view is open, and none will be opened."""
        with self._lock:
            return min((self._floor, *self._pins.values()))

    def _refuse_below_floor(self, timestamp: int) -> None:
        if timestamp < self._floor:
            raise TooOld(self._floor)

    def _view(self, at: int | None) -> LmdbView:
        self._layers.current()  # Refuses if the store is closed; each step of the view asks again.
        with self._lock:
            latest, applied, schema = self._state
            timestamp = max(latest, self._floor) if at is None else at
            self._refuse_below_floor(timestamp)
            self._pin_count += 1
            pin = self._pin_count
            # A later entry may have the same timestamp, so the versions before it are kept, too.
            self._pins[pin] = timestamp - 1
        release = partial(self._unpin, pin)
        return LmdbView(self._layers, schema, self._schemas, self._defaults, timestamp, applied.index, release)

    def _unpin(self, pin: int) -> None:
        with self._lock:
            self._pins.pop(pin, None)
