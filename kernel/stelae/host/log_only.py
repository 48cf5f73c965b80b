"""Replaces the store and the applied entries of a replica without rows, such as a witness.

Source: the appendix of "Raft config change": a node can take part in consensus without applying operations. Such a
replica decodes no entry and keeps no exactly-once results. Its log begins at a committed op id (``durability.md`` rule
12), and is collected as any other log: entries that it has passed over count as flushed once a superblock says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Never, Self

from stelae.spi.errors import NoRows
from stelae.spi.ids import OpId
from stelae.spi.log import Entry
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.services import EngineServices
from stelae.spi.store import ApplyEntry, ApplyResult, Changes, Cursor, Edit, StoreSnapshot, TabletStore, VersionedRows


def _no_rows() -> Never:
    raise NoRows("this replica is a witness: it keeps the log and has no rows; ask another replica of the tablet")


class PassedGroup:
    """Committed entries that are passed over together. It replaces an ``ApplyGroup``; the entries have no effects."""

    row_count = 0
    schemas: tuple[Schema, ...] = ()
    to_apply: tuple[ApplyEntry, ...] = ()

    def __init__(self, entries: Sequence[Entry], store: LogOnlyStore) -> None:
        self.entries = entries
        self.last = entries[-1].op_id
        self.timestamp = max(entry.timestamp for entry in entries)
        self._store = store

    def record(self, applied: Sequence[ApplyResult]) -> tuple[()]:
        """Pass the entries over. There are no answers, because no client asked this replica."""
        self._store.passed(self.entries)
        return ()


class LogOnlyStore(TabletStore):
    """Keeps no rows. ``passed_bytes`` counts the bytes of the entries since the last flush: it is the reason to flush.

    ``flush`` writes nothing: the edit says how far the log is not needed any more. Reads raise ``NoRows``."""

    name = "log-only"
    capabilities = frozenset({"durable_flush"})

    def __init__(self, schema: Schema, flushed: OpId) -> None:
        self._schema = schema
        self._applied = self._flushed = flushed
        self.passed_bytes = 0  #: Of the entries since the last flush. They are in the log, not in memory.

    def passed(self, entries: Sequence[Entry]) -> None:
        """Note that committed entries were passed over."""
        self._applied = entries[-1].op_id
        self.passed_bytes += sum(entry.size_bytes for entry in entries)

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
        """Return a stand-in. It opens no file."""
        return cls(schemas[max(schemas)], flushed)

    @property
    def applied(self) -> OpId:
        """The op id of the last entry that was passed over."""
        return self._applied

    @property
    def schema(self) -> Schema:
        """The newest schema that the leader's superblock had when the replica was created.

        It was in force at the op id at which the log begins. Later ones are in entries that are not decoded."""
        return self._schema

    def apply(self, entries: Sequence[ApplyEntry]) -> list[ApplyResult]:
        """Raise ``NoRows``: entries are passed over, not applied."""
        _no_rows()

    def scan(self, spec: ScanSpec, at: int | None = None) -> Cursor:
        """Raise ``NoRows``."""
        _no_rows()

    def diff(self, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
        """Raise ``NoRows``."""
        _no_rows()

    def flush(self) -> Edit | None:
        """Return an edit up to the last entry that was passed over, or ``None`` if there is none since the last one."""
        if self._applied == self._flushed:
            return None
        self.passed_bytes = 0
        return Edit(manifest=b"", flushed=self._applied)

    def compact(self) -> Edit | None:
        """Return ``None``: there is nothing to compact."""
        return None

    def commit(self, edit: Edit) -> None:
        """Note that a superblock with the edit is durable."""
        self._flushed = edit.flushed

    @property
    def history_floor(self) -> int:
        """0: there is no history."""
        return 0

    def set_history_floor(self, timestamp: int) -> None:
        """Do nothing: there is no history."""

    def checksum(self, at: int | None = None) -> str:
        """Raise ``NoRows``."""
        _no_rows()

    def memory_bytes(self) -> int:
        """Return 0: there are no rows in memory."""
        return 0

    def snapshot(self) -> StoreSnapshot:
        """Raise ``NoRows``."""
        _no_rows()

    def export(self) -> Iterator[VersionedRows]:
        """Raise ``NoRows``."""
        _no_rows()

    def import_(self, batches: Iterator[VersionedRows], applied: OpId) -> None:
        """Raise ``NoRows``: rows that arrive go to a store of the node's engine."""
        _no_rows()

    def close(self) -> None:
        """Do nothing."""
