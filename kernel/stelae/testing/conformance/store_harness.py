"""The harness of the store checks. It drives an engine as the kernel does: log, superblock, crash and reopen."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.rows.batcher import Batcher
from stelae.rows.limits import HIGHEST
from stelae.rows.operation_encoding import operation, sequence_ranges_of
from stelae.rows.plain_schema import schema_from_plain
from stelae.sim.disk import Survival, VirtualDisk
from stelae.spi.ids import ZERO, ClientId, OpId
from stelae.spi.payload import WritePayload, decode_payload
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.services import SharedParts
from stelae.spi.store import ApplyEntry, ApplyResult, Edit, TabletStore
from stelae.spi.write import OpKind, RowCode, digests_of
from stelae.testing.conformance.store_model import Op, Row

SCHEMA = schema_from_plain(
    {
        "columns": [
            {"name": "id", "type": "int64"},
            {"name": "name", "type": "string", "nullable": True},
            {"name": "count", "type": "int32", "default": 7},
        ],
        "key": ["id"],
    }
)
"""The schema of most checks: an integer key, a nullable column, and a column with a default."""

DIRECTORY = "/data/t"
"""The directory of every store, on a disk of its own."""


def payload(schema: Schema, ops: Sequence[Op]) -> WritePayload:
    """Build the payload of one entry as a leader does, and decode it as a follower does."""
    batcher = Batcher(schema, limits=HIGHEST)
    for sequence_range in sequence_ranges_of(
        (at, operation(op.kind, [*op.rows], op.columns)) for at, op in enumerate(ops, start=1)
    ):
        batcher.add(ClientId("c"), 1, sequence_range, digests_of(sequence_range), None)
    ((payload, _),) = batcher.build()
    return decode_payload(payload)


@dataclass(slots=True)
class HarnessReplica:
    """One store with its log, and with the fields of its superblock.

    Attributes:
        schemas: every schema version that the store may meet, by number.
        log: every entry so far, applied or not.
        manifest, flushed: of the last edit that was committed.
    """

    engine: type[TabletStore]
    config: Any
    schemas: dict[int, Schema]
    disk: VirtualDisk = field(default_factory=VirtualDisk)
    log: list[ApplyEntry] = field(default_factory=list)
    manifest: bytes = b""
    flushed: OpId = ZERO
    store: TabletStore = field(init=False)

    def __post_init__(self) -> None:
        # As on a node: the directory of all stores is durable, and the engine creates the one of this tablet.
        self.disk.make_directory(DIRECTORY.rpartition("/")[0])
        self.disk.sync_directory("/")
        self.open()

    @property
    def schema(self) -> Schema:
        """The newest schema version known."""
        return self.schemas[max(self.schemas)]

    def open(self) -> None:
        """Open the store from its durable state."""
        services: Any = SimpleNamespace(files=self.disk, shared=SharedParts())
        self.store = self.engine.open(DIRECTORY, self.manifest, self.flushed, self.schemas, self.config, services)

    def entry(
        self, *ops: Op, timestamp: int | None = None, skip: Sequence[int] = (), schema: Schema | None = None
    ) -> ApplyEntry:
        """Append an entry of some operations to the log, not applied yet.

        Args:
            timestamp: ten times the index by default: the entry with index 3 is at 30.
            skip: numbers of the operations to skip.
            schema: the version for which the rows are made; the newest one by default.
        """
        return self._append(payload(schema or self.schema, ops), timestamp, skip)

    def write(self, *ops: Op, **options: Any) -> list[tuple[int, RowCode]]:
        """Append and apply an entry (see :meth:`entry`); return its faults as pairs of row number and code."""
        return faults_of(self.store.apply([self.entry(*ops, **options)])[0])

    def insert(self, *rows: Row) -> list[tuple[int, RowCode]]:
        """Append and apply an insert."""
        return self.write(Op(OpKind.INSERT, rows))

    def change_schema(self, schema: Schema) -> None:
        """Append and apply a schema change."""
        entry = self._append(schema, None, ())
        self.schemas[schema.version] = schema
        self.store.apply([entry])

    def rows(self, at: int | None = None, **spec: Any) -> list[Row]:
        """Return the rows of a scan, in key order unless ``order`` is given."""
        with self.store.scan(ScanSpec(**{"order": "key", **spec}), at) as cursor:
            return [row for batch in cursor for row in batch.to_rows()]

    def flush(self) -> None:
        """Flush, make the edit durable, and commit it. An engine without durable flush proposes no edit."""
        self._commit(self.store.flush())

    def compact(self, edits_max: int = 100) -> None:
        """Compact, making each edit durable, until the engine proposes none, or after ``edits_max`` edits."""
        for _ in range(edits_max):
            edit = self.store.compact()
            if edit is None:
                return
            self._commit(edit)

    def forbid_files(self) -> None:
        """Make every read and every change of a file fail, until ``allow_files``."""

        def refuse(operation: str, path: str) -> None:
            raise AssertionError(f"{operation} of {path} may block the event loop")

        self.disk.faults.fail_reads(count=1 << 30)
        self.disk.faults.hook = refuse

    def allow_files(self) -> None:
        """End ``forbid_files``."""
        self.disk.faults.heal()
        self.disk.faults.hook = None

    def _commit(self, edit: Edit | None) -> None:
        if edit is not None:
            self.manifest, self.flushed = edit.manifest, edit.flushed
            self.store.commit(edit)

    def crash(self, seed: int = 0, survival: Survival = Survival.DRAWN) -> None:
        """Lose power, reopen from the durable state, and apply the later entries of the log again."""
        if "fake_files" in self.engine.capabilities:
            self.disk = self.disk.crash(random.Random(seed), survival)
        else:
            self.store.close()
        self.open()
        self._replay()

    def after_kill(self) -> HarnessReplica:
        """Return the replica that the next process opens if this one is killed now. It sees all that was written."""
        twin = dataclasses.replace(self, disk=self.disk.clone(), schemas=dict(self.schemas), log=list(self.log))
        twin._replay()
        return twin

    def _replay(self) -> None:
        assert self.store.applied <= self.flushed, (
            f"after a restart the store has applied {self.store.applied}, and only {self.flushed} is in the superblock"
        )
        self.store.apply([e for e in self.log if e.op_id > self.store.applied])

    def _append(self, change: WritePayload | Schema, timestamp: int | None, skip: Sequence[int]) -> ApplyEntry:
        index = len(self.log) + 1
        stamp = 10 * index if timestamp is None else timestamp
        self.log.append(ApplyEntry(OpId(1, index), stamp, change, frozenset(skip)))
        return self.log[-1]


@dataclass(slots=True)
class StoreHarness:
    """Makes replicas of one engine.

    Args:
        engine: the engine under test.
        make_config: makes its settings; its defaults if ``None``.
    """

    engine: type[TabletStore]
    make_config: Callable[[], Any] | None = None

    def replica(self, schema: Schema = SCHEMA) -> HarnessReplica:
        """Make a new, empty replica."""
        config = (self.make_config or self.engine.Config)()
        return HarnessReplica(self.engine, config, {schema.version: schema})

    def needs(self, capability: str) -> None:
        """Skip the check, with the reason, unless the engine declares a capability."""
        if capability not in self.engine.capabilities:
            pytest.skip(f"the store {self.engine.name!r} does not declare {capability!r}")


def faults_of(result: ApplyResult) -> list[tuple[int, RowCode]]:
    """Return the faults of a result as pairs of row number and code."""
    return [(fault.row, fault.code) for fault in result.faults]


def insert(*rows: Row) -> Op:
    """Return an insert of whole rows."""
    return Op(OpKind.INSERT, rows)


def upsert(*rows: Row) -> Op:
    """Return an upsert of whole rows."""
    return Op(OpKind.UPSERT, rows)


def delete(*keys: Row) -> Op:
    """Return a delete by key."""
    return Op(OpKind.DELETE, keys)
