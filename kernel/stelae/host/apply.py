"""Committed entries on their way into the store, in log order, each exactly once.

The exactly-once results are updated here and nowhere else (``durability.md`` rule 16): a request that an earlier entry
has carried is skipped and gets the first answer, on every replica alike."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from stelae.host.entry_cache import EntryCache
from stelae.host.exactly_once_results import Admission, ResultsTable
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

GROUP_BYTES_MAX = 4 << 20  #: Bytes of entries that are applied in one call, at least one entry.


@dataclass(frozen=True, slots=True)
class EntryAnswers:
    """One applied ``WRITE`` entry, and the answers of each run of its payload, in order; or a ``SCHEMA`` entry."""

    op_id: OpId
    answers: Sequence[Sequence[Answer]]


class ApplyGroup:
    """Some entries, decoded and admitted for the store. ``Corrupt``: an entry's body is not what its kind says.

    A schema holds if it follows the one in force; one that was proposed twice, or beside another, changes nothing.
    Rows that were made for another version than the one in force at their entry are refused, on every replica alike: so
    a leader that has applied a schema change knows that rows of an older version take no effect any more."""

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
        """Keep the results of what the store applied; return the answers of every write and schema change."""
        writes = [
            result
            for entry, result in zip(self.to_apply, applied, strict=True)
            if isinstance(entry.change, WritePayload)
        ]
        pairs = zip(self._admissions, writes, strict=True)
        return [EntryAnswers(w.op_id, self._results.record(a, w.faults)) for a, w in pairs] + self._changes


def other_version(version: int, schema: Schema) -> OpResult | None:
    """Return the refusal of rows that were made for another schema version than the one in force; else ``None``."""
    if version == schema.version:
        return None
    fact = f"rows were made for schema version {version}; the tablet has version {schema.version}"
    return refused(SchemaMismatch(f"{fact}: read its schema again"))


@dataclass(eq=False, repr=False, kw_only=True)
class Applier:
    """Applies what is committed, on the event loop."""

    log: LogId
    store: TabletStore  #: Stands at ``applied``, as ``results`` do.
    results: ResultsTable
    applied: OpId
    schemas: tuple[bytes, ...]  #: All that were in force up to ``applied``.
    timestamp: int  #: The hybrid one at which a scan sees exactly what is applied.
    cache: EntryCache
    reader: LogReader
    writer: LogWriter
    pool: BlockingPool  #: Runs stores that do not apply inline.
    metrics: Metrics
    on_answered: Callable[[EntryAnswers], None]  #: Gets the answers of each applied write or schema change,
    on_schema: Callable[[Schema], None]  #: the schema that holds from here on,
    on_applied: Callable[[OpId], None]  #: each advance,
    on_failed: Callable[[str], None]  #: why an entry cannot be applied,
    later: Callable[[Callable[[], None]], None]  #: and what to try again in a while.

    def __post_init__(self) -> None:
        self.on_group: Callable[[Sequence[Entry]], None] | None = None  #: Gets all that is applied, if anybody cares.
        self.has_room: Callable[[], bool] = lambda: True  #: Asked before each group; makes room if there is none.
        self._commit = self.applied.index
        self._busy = False
        self._failed = False
        self._between: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()

    @property
    def idle(self) -> bool:
        """True if nothing is being applied, flushed or read at the moment."""
        return not self._busy and not self._between

    def commit_to(self, index: int) -> None:
        """Entries up to ``index`` are committed; apply them as far as they are here."""
        self._commit = max(self._commit, index)
        self.advance()

    def advance(self) -> None:
        """Apply what is committed and here. Harmless to call at any time."""
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
        """As ``halt``; ``done`` once what is in hand has ended: the store may be closed then, and not before."""
        self.halt()
        self.pool.run(f"apply/{self.log.tablet_id}", lambda: None, done)

    def halt(self) -> None:
        """Begin nothing more."""
        self._failed = True

    def between_groups(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run ``work`` off the loop while what is applied stands still, then ``done(result or exception)`` on it."""
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
            # No handles, no memory, or a read that failed: the entries are there. Whoever notes reads ends a long row.
            self.later(self.advance)
        else:
            self._fail(f"committed entries cannot be read: {result}")

    def _apply(self, entries: Sequence[Entry]) -> None:
        try:
            group = ApplyGroup(entries, self.results, self.store.schema)
            if not group.to_apply or self.store.applies_inline(group.to_apply):
                self._finish(group, self.store.apply(group.to_apply) if group.to_apply else [])
                return
        except StelaeError as error:
            self._fail(f"entries after {self.applied} cannot be applied: {error}")
            return
        self._off_loop(partial(self.store.apply, group.to_apply), partial(self._applied_off_loop, group))

    def _applied_off_loop(self, group: ApplyGroup, result: list[ApplyResult] | Exception) -> None:
        if not isinstance(result, Exception):
            try:
                self._finish(group, result)
            except StelaeError as error:
                result = error
        if isinstance(result, Exception):
            self._fail(f"entries after {self.applied} cannot be applied: {result}")

    def _finish(self, group: ApplyGroup, applied: Sequence[ApplyResult]) -> None:
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

    def _fail(self, reason: str) -> None:
        self.halt()
        self.on_failed(reason)
