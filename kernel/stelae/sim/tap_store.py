"""The tap on a tablet store: forwards every call and reports which requests of an entry took effect."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

from stelae.sim.fact_feed import FactFeed
from stelae.sim.invariants import AppliedRequest
from stelae.sim.range_counts import count_applied
from stelae.sim.store_files import StoreFiles
from stelae.sim.table import RowCells
from stelae.sim.world import ObservedNode
from stelae.spi.errors import Full, TooOld
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
    StoreSnapshot,
    TabletStore,
    VersionedRows,
)

CHECKSUM_EVERY = 32
"""The number of entries between two comparisons of the checksum."""

CHANGES_EVERY = 64
"""The number of entries between two comparisons of the changed rows."""

REPEATED_EVERY = 4
"""As ``CHANGES_EVERY``, for entries with repeated operations."""


class StoreTap(TabletStore):
    """One store with a tap. Behaves exactly like a store of ``engine``; see :func:`tapped_store`."""

    engine: ClassVar[type[TabletStore]]
    node: ClassVar[ObservedNode]
    facts: ClassVar[FactFeed]
    files: ClassVar[StoreFiles]
    inline: ClassVar[bool]

    def __init__(self, inner: TabletStore) -> None:
        self._inner = inner

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
        """Open a store as ``engine`` does, put a tap on it, and report the checksum as of the flushed entry.

        A store that is opened while the replica has only a log gets copied rows, and is not the replica's yet."""
        tap = cls(cls.engine.open(directory, manifest, flushed, schemas, config, services))
        if not cls.node.log_only:
            cls.facts.store_opened(cls.node, flushed)
        cls.files.opened()
        if flushed.index:
            cls.facts.coverage.hit("store.opened_at_flushed")
            inner = tap._inner
            cls.facts.checksum(cls.node, cls.engine.name, flushed.index, inner.checksum(), inner.schema)
        return tap

    @property
    def applied(self) -> OpId:
        """As ``engine``."""
        return self._inner.applied

    @property
    def schema(self) -> Schema:
        """As ``engine``."""
        return self._inner.schema

    def apply(self, entries: Sequence[ApplyEntry]) -> list[ApplyResult]:
        """As ``engine``. Every entry is reported with the outcome of its requests."""
        if entries[0].op_id.index <= self.node.applied:
            self.facts.coverage.hit("store.replayed")
        self.node.applied = max(self.node.applied, entries[-1].op_id.index)
        for entry in entries:
            if isinstance(entry.change, Schema):
                self.facts.schema_applied(self.node, entry.op_id, entry.change)
        results = self._inner.apply(entries)
        for entry, result in zip(entries, results, strict=True):
            self.facts.applied(self.node, entry.op_id, self._requests(entry, result))
        for entry in entries:
            if isinstance(entry.change, WritePayload):
                self._check_history(entry)
        return results

    def applies_inline(self, entries: Sequence[ApplyEntry]) -> bool:
        """As ``engine`` if ``inline``, else false."""
        return self.inline and self._inner.applies_inline(entries)

    def scan(self, spec: ScanSpec, at: int | None = None) -> Cursor:
        """As ``engine``."""
        return self._inner.scan(spec, at)

    def scan_inline(self, spec: ScanSpec, at: int | None = None) -> Cursor | None:
        """As ``engine`` if ``inline``, else ``None``."""
        cursor = self._inner.scan_inline(spec, at) if self.inline else None
        self.facts.coverage.hit("short_scan.on_worker" if cursor is None else "short_scan.inline")
        return cursor

    def lookup(self, keys: Sequence[bytes], at: int | None = None) -> FoundRows | FoundBatch:
        """As ``engine``."""
        self.facts.coverage.hit("lookup.on_worker")
        return self._inner.lookup(keys, at)

    def lookup_inline(self, keys: Sequence[bytes], at: int | None = None) -> FoundRows | FoundBatch:
        """As ``engine`` if ``inline``, else as an engine that leaves every key to ``lookup``."""
        found = self._inner.lookup_inline(keys, at) if self.inline else super().lookup_inline(keys, at)
        if len(found.unread) < len(keys):
            self.facts.coverage.hit("lookup.inline_in_part" if found.unread else "lookup.inline")
        return found

    def diff(self, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
        """As ``engine``."""
        return self._inner.diff(after, until, spec)

    def flush(self) -> Edit | None:
        """As ``engine``."""
        return self._proposed("flush", self._inner.flush)

    def compact(self) -> Edit | None:
        """As ``engine``."""
        return self._proposed("compaction", self._inner.compact)

    def commit(self, edit: Edit) -> None:
        """As ``engine``."""
        self._inner.commit(edit)
        self.files.check_missing()
        self.facts.coverage.hit("store.edit_committed")
        if edit.obsolete:
            self.facts.coverage.hit("store.obsolete_removed")

    @property
    def history_floor(self) -> int:
        """As ``engine``."""
        return self._inner.history_floor

    def set_history_floor(self, timestamp: int) -> None:
        """As ``engine``."""
        self._inner.set_history_floor(timestamp)
        if timestamp > self.node.floor:
            self.facts.coverage.hit("store.floor_raised")
        self.facts.floor_raised(self.node, timestamp)

    def checksum(self, at: int | None = None) -> str:
        """As ``engine``."""
        return self._inner.checksum(at)

    def memory_bytes(self) -> int:
        """As ``engine``."""
        return self._inner.memory_bytes()

    def snapshot(self) -> StoreSnapshot:
        """As ``engine``."""
        return self._inner.snapshot()

    def export(self) -> Iterator[VersionedRows]:
        """As ``engine``."""
        return self._inner.export()

    def import_(self, pieces: Iterator[VersionedRows], applied: OpId) -> None:
        """As ``engine``."""
        self._inner.import_(pieces, applied)

    def close(self) -> None:
        """As ``engine``."""
        self._inner.close()

    def _proposed(self, what: str, work: Callable[[], Edit | None]) -> Edit | None:
        try:
            edit = work()
        except Full:
            self.facts.coverage.hit("store.no_space")
            raise
        if edit is None:
            self.files.check_missing()
            return None
        self.facts.coverage.hit(f"store.{what}")
        self.files.proposed(edit)
        return edit

    def _check_history(self, entry: ApplyEntry) -> None:
        """For some entries, report the store's checksum as of the entry and the rows that the entry changed.

        Replayed entries may be below the history floor of the manifest. They are not checked."""
        index, stamp, schema = entry.op_id.index, entry.timestamp, self._inner.schema
        with contextlib.suppress(TooOld):
            if index % CHECKSUM_EVERY == 0:
                self.facts.checksum(self.node, self.engine.name, index, self._inner.checksum(stamp), schema)
            if index % CHANGES_EVERY == 0 or (entry.skip and index % REPEATED_EVERY == 0):
                rows: dict[int, RowCells | None] = {}
                for changes in self._inner.diff(stamp - 1, stamp, ScanSpec()):
                    rows |= {row[0]: row[1:] for row in changes.changed.to_rows()}
                    rows |= dict.fromkeys(key for (key,) in changes.deleted.to_rows())
                self.facts.changed(self.node, entry.op_id, rows, schema)

    def _requests(self, entry: ApplyEntry, result: ApplyResult) -> list[AppliedRequest]:
        payload = entry.change
        if not isinstance(payload, WritePayload):
            return []
        found = _requests(entry, payload, result)
        faulty = frozenset(request.order for request in found if request.errors)
        count_applied(self.facts.coverage, payload, entry.skip, faulty)
        return found


def tapped_store(
    engine: type[TabletStore], node: ObservedNode, facts: FactFeed, files: StoreFiles, *, inline: bool
) -> type[TabletStore]:
    """Return an engine that puts a tap on each store of ``engine``.

    Unless ``inline``, a worker applies the entries and looks up the keys, even if the store could do so on the event
    loop."""
    members = {
        "name": engine.name,
        "Config": engine.Config,
        "capabilities": engine.capabilities,
        "files_format": engine.files_format,
        "engine": engine,
        "node": node,
        "facts": facts,
        "files": files,
        "inline": inline,
    }
    return type("TappedStore", (StoreTap,), members)


def _requests(entry: ApplyEntry, payload: WritePayload, result: ApplyResult) -> list[AppliedRequest]:
    """Return for each request of an entry whether it took effect, and the errors of its rows."""
    faults = {fault.row: fault.code.name for fault in result.faults}
    found: list[AppliedRequest] = []
    row = 0
    operations = [
        (sequence_range, offset)
        for sequence_range in payload.sequences
        for offset in range(len(sequence_range.digests))
    ]
    for number, (sequence_range, offset) in enumerate(operations):
        rows = range(row, row + sequence_range.row_counts[offset])
        row = rows.stop
        unfit = {error.row: error.code.name for at, error in sequence_range.errors if at == offset}
        # The entry does not have the unfit rows, but the positions in the answer count them.
        places = (sent for sent in itertools.count() if sent not in unfit)
        wrong = unfit | {sent: faults[r] for r, sent in zip(rows, places, strict=False) if r in faults}
        client = payload.clients[sequence_range.client]
        found.append(
            AppliedRequest(
                op_id=entry.op_id,
                order=number,
                client=client.client_id,
                sequence=sequence_range.first_sequence + offset,
                skipped=number in entry.skip,
                errors=tuple(sorted(wrong.items())),
                digest=sequence_range.digests[offset],
                version=payload.schema_version,
                fence=sequence_range.fence,
                first_incomplete=client.first_incomplete,
            )
        )
    return found
