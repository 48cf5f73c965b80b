"""Applies committed entries to the store, in log order, each exactly once.

Only this module updates the exactly-once results (``durability.md`` rule 16). An operation that an earlier entry
already contained is skipped and gets the first answer. Every replica decides that in the same way."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from stelae.host.entry_cache import EntryCache
from stelae.host.exactly_once_results import Admission, ResultsTable
from stelae.host.log_only import LogOnlyStore, PassedGroup
from stelae.host.log_writer import LogWriter
from stelae.host.ports import BlockingPool, LogReader
from stelae.spi.errors import Full, SchemaMismatch, StelaeError, StorageError
from stelae.spi.ids import LogId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.payload import WritePayload, decode_payload
from stelae.spi.schema import Schema
from stelae.spi.services import Metrics
from stelae.spi.store import ApplyEntry, ApplyResult, TabletStore
from stelae.spi.write import Answer, OpResult, refused

GROUP_BYTES_MAX = 4 << 20  #: The most bytes of entries that are applied in one call, unless it is a single entry.


@dataclass(frozen=True, slots=True)
class EntryAnswers:
    """The answers of one applied ``WRITE`` or ``SCHEMA`` entry."""

    op_id: OpId
    #: For each sequence range of the payload, in order, its answers. A ``SCHEMA`` entry has one answer.
    answers: Sequence[Sequence[Answer]]


class ApplyGroup:
    """Entries that are applied together: decoded, and checked against the exactly-once results.

    The constructor raises ``Corrupt`` if the body of an entry does not have its kind.

    A schema takes effect if its version follows the version in force. A schema that was proposed twice, or after
    another one with the same version, changes nothing. Rows that were made for another version than the one in force at
    their entry are refused, by every replica. So a leader that has applied a schema change knows that no rows of an
    older version can take effect any more."""

    def __init__(self, entries: Sequence[Entry], results: ResultsTable, schema: Schema) -> None:
        self.entries = entries
        self.last, self.row_count = entries[-1].op_id, 0
        self.timestamp = max(entry.timestamp for entry in entries)
        self._results = results
        self._admissions: list[Admission] = []
        self._changes: list[EntryAnswers] = []
        self.schemas: list[Schema] = []
        self.to_apply: list[ApplyEntry] = []
        for entry in entries:
            if entry.kind is EntryKind.WRITE:
                payload = decode_payload(entry.body)
                admission = results.admit(payload, entry.timestamp, other_version(payload.schema_version, schema))
                self._admissions.append(admission)
                self.to_apply.append(ApplyEntry(entry.op_id, entry.timestamp, payload, admission.skip))
                self.row_count += payload.row_count
            elif entry.kind is EntryKind.SCHEMA:
                new, result = Schema.from_bytes(entry.body), OpResult(entry.timestamp)
                if new.version == schema.version + 1:
                    schema = new
                    self.schemas.append(new)
                    self.to_apply.append(ApplyEntry(entry.op_id, entry.timestamp, new))
                elif new != schema:
                    result = refused(SchemaMismatch(f"version {new.version} does not follow {schema.version}"))
                self._changes.append(EntryAnswers(entry.op_id, [[Answer(0, 1, result)]]))

    def record(self, applied: Sequence[ApplyResult]) -> list[EntryAnswers]:
        """Store the results of applying this group. Return the answers of every write and every schema change."""
        writes = [
            result
            for entry, result in zip(self.to_apply, applied, strict=True)
            if isinstance(entry.change, WritePayload)
        ]
        pairs = zip(self._admissions, writes, strict=True)
        return [EntryAnswers(w.op_id, self._results.record(a, w.faults)) for a, w in pairs] + self._changes


def group_of(entries: Sequence[Entry], store: TabletStore, results: ResultsTable) -> ApplyGroup | PassedGroup:
    """Return committed entries as a group for a store. Raises as ``ApplyGroup``. Without rows, nothing is decoded."""
    if isinstance(store, LogOnlyStore):
        return PassedGroup(entries, store)
    return ApplyGroup(entries, results, store.schema)


def other_version(version: int, schema: Schema) -> OpResult | None:
    """Return the refusal of rows of schema ``version`` if another version is in force, else ``None``."""
    if version == schema.version:
        return None
    fact = f"the rows were made for schema version {version}, but the tablet has version {schema.version}"
    return refused(SchemaMismatch(f"{fact}; read its schema again"))


@dataclass(eq=False, repr=False, kw_only=True)
class Applier:
    """Applies the committed entries of one replica, on the event loop."""

    log: LogId
    store: TabletStore  #: Has applied the entries up to ``applied``.
    results: ResultsTable  #: The exactly-once results as of ``applied``.
    applied: OpId  #: The op id of the last applied entry.
    schemas: tuple[bytes, ...]  #: All schema versions that were in force up to ``applied``.
    timestamp: int  #: The hybrid timestamp at which a scan sees exactly the applied rows.
    cache: EntryCache
    reader: LogReader
    writer: LogWriter
    pool: BlockingPool  #: Runs ``apply`` for stores that do not apply inline.
    metrics: Metrics
    on_answered: Callable[[EntryAnswers], None]  #: Gets the answers of each applied write or schema change.
    on_schema: Callable[[Schema], None]  #: Gets each schema that takes effect.
    on_applied: Callable[[OpId], None]  #: Gets the op id of the last applied entry after each group.
    #: Gets the reason if an entry cannot be applied, and the error of the store or ``None`` (``ReadFaults``).
    on_failed: Callable[[str, object], None]
    retry_later: Callable[[Callable[[], None]], None]  #: Calls its argument after a pause.

    def __post_init__(self) -> None:
        #: If set, gets the entries of each applied group.
        self.on_group: Callable[[Sequence[Entry]], None] | None = None
        #: Asked before each group whether there is memory for it. It may start a flush if there is not.
        self.has_room: Callable[[], bool] = lambda: True
        self._commit = self.applied.index
        self._busy = False
        self._failed = False
        self._between: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()

    @property
    def idle(self) -> bool:
        """Whether nothing is being applied, flushed or read."""
        return not self._busy and not self._between

    def commit_to(self, index: int) -> None:
        """Note that entries up to ``index`` are committed, and apply those that this replica has."""
        self._commit = max(self._commit, index)
        self.advance()

    def advance(self) -> None:
        """Apply the committed entries that this replica has. Harmless to call at any time.

        In each round:

        1. Work that waits for a pause between two groups (a flush, a compaction) goes first.
        2. If there is no memory for more rows, nothing is applied.
        3. The next entries come from the cache, or are read from the log. Then they are applied."""
        while not self._busy and not self._failed:
            if self._between:
                self._off_loop(*self._between.popleft())
                return
            if not self.has_room():
                return
            first = self.applied.index + 1
            end = min(self._commit + 1, self.cache.end_index)
            if first >= end:
                return
            entries = self.cache.get(first, end, GROUP_BYTES_MAX)
            if entries is None:
                self._busy = True
                end = min(end, self.cache.first_index)
                self.reader.read(self.log, first, end, GROUP_BYTES_MAX, self._arrived)
                return
            self._apply(entries)

    def stop(self, done: Callable[[None], None]) -> None:
        """Start no new work, and call ``done`` when the current work has ended. Only then may the store be closed."""
        self.halt()
        self.pool.run(f"apply/{self.log.tablet_id}", lambda: None, done)

    def halt(self) -> None:
        """Start no new work."""
        self._failed = True

    def between_groups(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run ``work`` off the loop while nothing is applied, then ``done(result or exception)`` on the loop."""
        self._between.append((work, done))
        self.advance()

    def _off_loop(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._busy = True

        def finished(result: Any) -> None:
            self._busy = False
            done(result)
            self.advance()

        self.pool.run(f"apply/{self.log.tablet_id}", work, finished)

    def _arrived(self, result: list[Entry] | StelaeError) -> None:
        self._busy = False
        if self._failed:
            return
        if isinstance(result, list):
            self._apply(result)
            self.advance()
        elif isinstance(result, Full) or type(result) is StorageError:
            # No handles, no memory, or a failed read: the entries may still be there. ``read_faults`` fails the replica
            # after too many failed reads in a row.
            self.retry_later(self.advance)
        else:
            self._fail(f"committed entries cannot be read: {result}")

    def _apply(self, entries: Sequence[Entry]) -> None:
        try:
            group = group_of(entries, self.store, self.results)
            if not group.to_apply or self.store.applies_inline(group.to_apply):
                self._finish(group, self.store.apply(group.to_apply) if group.to_apply else [])
                return
        except StelaeError as error:
            self._fail(f"entries after {self.applied} cannot be applied: {error}", error)
            return
        self._off_loop(partial(self.store.apply, group.to_apply), partial(self._applied_off_loop, group))

    def _applied_off_loop(self, group: ApplyGroup | PassedGroup, result: list[ApplyResult] | Exception) -> None:
        if not isinstance(result, Exception):
            try:
                self._finish(group, result)
            except StelaeError as error:
                result = error
        if isinstance(result, Exception):
            self._fail(f"entries after {self.applied} cannot be applied: {result}", result)

    def _finish(self, group: ApplyGroup | PassedGroup, applied: Sequence[ApplyResult]) -> None:
        answers = group.record(applied)
        self.metrics.count("rows_applied", group.row_count)
        self.applied = group.last
        self.timestamp = max(self.timestamp, group.timestamp)
        for schema in group.schemas:
            self.schemas += (schema.to_bytes(),)
            self.on_schema(schema)
        if self.on_group is not None:
            self.on_group(group.entries)
        for answered in answers:
            self.on_answered(answered)
        durable_index = self.cache.settled(self.writer.durable(self.log).index)
        self.cache.evict(min(group.last.index, durable_index))
        self.on_applied(group.last)

    def _fail(self, reason: str, store_error: object = None) -> None:
        self.halt()
        self.on_failed(reason, store_error)
