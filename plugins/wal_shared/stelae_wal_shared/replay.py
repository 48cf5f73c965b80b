"""Replays the records of a segment onto the logs.

Each record has the number of its log and its own number within that log. So a gap in these numbers shows that records
were lost. A log whose next record has the expected number was not affected by the damage before it. A log without a
record behind the damage may or may not be affected, so it counts as damaged."""

from __future__ import annotations

from stelae.spi.ids import LogId, OpId, TabletId
from stelae_wal_shared.decisions import SharedFinding
from stelae_wal_shared.format import RecordKind, SharedRecord
from stelae_wal_shared.index import SharedSegmentIndex
from stelae_wal_shared.scan import InvalidBytes, SharedScanStop, ValidRecord, index_record, scan
from stelae_wal_shared.segment import SharedSegment
from stelae_wal_shared.tablet_log import SharedTabletLog

GENERATION_BYTES = 8
FILLING = b"\xff"
"""The byte that may follow a name up to the end of a page. It is no byte of a tablet id, and not zero."""


def encode_name(name: LogId) -> bytes:
    """Return the body of the record that creates a log."""
    return name.generation.to_bytes(GENERATION_BYTES, "little") + name.tablet_id.encode()


def decode_name(body: bytes) -> LogId:
    """Return the log that a record with this body creates."""
    generation = int.from_bytes(body[:GENERATION_BYTES], "little")
    return LogId(TabletId(body[GENERATION_BYTES:].rstrip(FILLING).decode()), generation)


def damage_log(
    log: SharedTabletLog, found: SharedFinding, path: str, offset: int, detail: str, last_good: int | None = None
) -> None:
    """Record damage: the log ends at ``last_good``, or where it ends now."""
    good = log.last.index if last_good is None else max(log.base.index, min(last_good, log.last.index))
    row = found.value
    log.note_damage(path, offset, f"{detail} (recovery row {row.letter}: {row.situation})", log.op_id_at(good))


class RecordReplay:
    """Updates logs with the records of one segment.

    Args:
        logs: the logs of the node as of the segment's head; they are changed.
        next_log: number of the log that is created next.
        segment: the segment. Its index, entries and end are set.

    Attributes:
        found: the rows of the decision table that applied.
        next_log: number of the next log at the end of the segment.
        stop, synced: as in ``scan.ScanEnd``.
    """

    def __init__(self, logs: dict[LogId, SharedTabletLog], next_log: int, segment: SharedSegment) -> None:
        self._logs = logs
        self._by_number = {log.number: log for log in logs.values()}
        self._segment = segment
        self._suspects: set[int] = set()
        self._first_bad: InvalidBytes | None = None
        segment.index = self._index = SharedSegmentIndex()
        self.next_log = next_log
        self.found: list[SharedFinding] = []
        self.stop = SharedScanStop.CLEAN
        self.synced = segment.start

    def run(self, data: bytes, synced: int = 0) -> None:
        """Replay ``data``, the segment from its first record on, which was durable up to ``synced``."""
        segment = self._segment
        for found in scan(data, segment.start, segment.nonce, synced):
            if isinstance(found, ValidRecord):
                self._record(found)
            elif isinstance(found, InvalidBytes):
                self._invalid(found)
            else:
                segment.end, self.stop, self.synced = found
        bad = self._first_bad
        for number in sorted(self._suspects):
            assert bad is not None
            damage_log(self._by_number[number], SharedFinding.BAD_RECORD, segment.path, bad.offset, bad.detail)

    # -- damage ----------------------------------------------------------------------------------

    def _invalid(self, bad: InvalidBytes) -> None:
        record = bad.record
        if record is None:
            self.found.append(SharedFinding.BAD_RECORD)
            self._first_bad = self._first_bad or bad
            self._suspects = {number for number, log in self._by_number.items() if log.damage is None}
            return
        log = self._by_number.get(record.log)
        if log is not None and log.damage is None and record.kind != RecordKind.CREATE:
            self.found.append(SharedFinding.BAD_BODY)
            self._suspects.discard(record.log)
            damage_log(log, SharedFinding.BAD_BODY, self._segment.path, bad.offset, bad.detail, record.index - 1)

    # -- records ---------------------------------------------------------------------------------

    def _record(self, found: ValidRecord) -> None:
        record = found.record
        log = self._by_number.get(record.log)
        if record.kind == RecordKind.CREATE:
            if log is None and record.log >= self.next_log:
                self._create(found)
            return
        if log is None:
            return
        if log.damage is not None:
            # A damaged log takes no entries. But records that remove entries apply: they are durable before a segment
            # is removed.
            if record.kind == RecordKind.DROP or (record.kind == RecordKind.BASE and _fits(record, log)):
                self._apply(log, record)
            elif record.kind in (RecordKind.ENTRY, RecordKind.VOID):
                _end_before(log, record.index)
            return
        if record.order != log.order + 1:
            self._records_missing(log, record, found.offset)
        elif not _fits(record, log):
            self.found.append(SharedFinding.UNFIT)
            fact = f"record {record.term}.{record.index} does not fit a log from {log.base} to {log.last}"
            damage_log(log, SharedFinding.UNFIT, self._segment.path, found.offset, fact)
        else:
            self._apply(log, record)
            index_record(self._index, found)
        self._suspects.discard(record.log)

    def _create(self, found: ValidRecord) -> None:
        record = found.record
        log = SharedTabletLog(decode_name(found.body), record.log, OpId(record.term, record.index))
        log.order = record.order
        self._logs[log.name] = self._by_number[log.number] = log
        self.next_log = record.log + 1

    def _records_missing(self, log: SharedTabletLog, record: SharedRecord, offset: int) -> None:
        """Record damage: records of a log are missing before this one. They may have replaced as many entries."""
        self.found.append(SharedFinding.MISSED)
        bad = self._first_bad
        where, why = (offset, "records before it are missing") if bad is None else (bad.offset, bad.detail)
        damage_log(log, SharedFinding.MISSED, self._segment.path, where, why)
        if record.kind in (RecordKind.ENTRY, RecordKind.VOID):
            _end_before(log, record.index - max(0, record.order - log.order - 1))

    def _apply(self, log: SharedTabletLog, record: SharedRecord) -> None:
        segment, index = self._segment, record.index
        log.order = record.order
        log.commit_hint = max(log.commit_hint, record.commit_hint)
        if record.kind == RecordKind.ENTRY:
            if index <= log.last.index:
                log.void(index)
            log.append(OpId(record.term, index), segment)
            segment.entries += 1
        elif record.kind == RecordKind.MOVED:
            log.move(index, index + 1, segment)
            segment.entries += 1
        elif record.kind == RecordKind.VOID:
            log.void(index)
        elif record.kind == RecordKind.BASE:
            log.collect(OpId(record.term, index))
        elif record.kind == RecordKind.DROP:
            log.release()
            del self._logs[log.name], self._by_number[log.number]
        log.durable = log.last


def _end_before(log: SharedTabletLog, first: int) -> None:
    """Let a damaged log end before ``first``: a record behind the damage has replaced the entries from there on."""
    damage = log.damage
    assert damage is not None
    if first <= log.last.index:
        good = log.op_id_at(max(first - 1, log.base.index))
        log.note_damage(damage.path, damage.offset, damage.detail, good)


def _fits(record: SharedRecord, log: SharedTabletLog) -> bool:
    """Say whether a record fits the state of its log."""
    base, last, index = log.base.index, log.last.index, record.index
    if record.kind in (RecordKind.ENTRY, RecordKind.VOID):
        return base < index <= last + 1
    if record.kind == RecordKind.MOVED:
        return base < index <= last and log.op_id_at(index).term == record.term
    if record.kind == RecordKind.BASE:
        return base <= index <= last and log.op_id_at(index).term == record.term
    return record.kind == RecordKind.DROP
