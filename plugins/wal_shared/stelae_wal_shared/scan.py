"""Reading the records of one segment in order: for recovery, and for a segment without a footer.

What is invalid is either damage or a tail. It is damage if it was durable once, which a later group
tells by its synced offset, or if all of its group was written: the mark at the end of that stands, and no
sector of what is invalid is zero, as space is until it is written. Such bytes were whole, and changed. A scan
names damage and goes on behind it, since what follows may be of other logs. All else is a tail that a crash
left, and the scan ends before it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from stelae_wal_shared.footer import is_lead
from stelae_wal_shared.format import (
    END_MARK_BYTES,
    GROUP_BYTES,
    RECORD_BYTES,
    RecordKind,
    SharedRecord,
    decode_group_header,
    decode_record,
    end_mark_of,
    footer_mark_of,
    group_mark_of,
    salt_of,
)
from stelae_wal_shared.head import SECTOR_BYTES
from stelae_wal_shared.index import SharedSegmentIndex


class SharedScanStop(Enum):
    """Why a scan ends where it does."""

    CLEAN = auto()  #: The end of the data, or only zeros follow.
    FOOTER = auto()  #: A footer begins, whole or not.
    TORN = auto()  #: Invalid, and part of it was never written.
    LOST = auto()  #: Damage, with no valid group behind it.


class Valid(NamedTuple):
    """A record that is as it was written, at an offset of the file; with its body."""

    offset: int
    record: SharedRecord
    body: bytes


class Invalid(NamedTuple):
    """Damage at an offset of the file.

    ``record`` is the record's fixed part if at least that is valid: then the damage is of that log
    alone. Otherwise it may be of any."""

    offset: int
    record: SharedRecord | None
    detail: str


class End(NamedTuple):
    """Where the valid records end. ``synced`` is the highest synced offset that a group records."""

    offset: int
    stop: SharedScanStop
    synced: int


Found: TypeAlias = Valid | Invalid | End


def scan(data: bytes, start: int, nonce: int, synced: int = 0) -> Iterator[Found]:
    """Yield the records of a segment, damage included; the last one is the ``End``.

    Args:
        data: of the segment, from offset ``start`` of the file on, where its records begin.
        nonce: of the segment.
        synced: the file is known to have been durable up to there.
    """
    return _SharedScan(data, start, nonce, synced).run()


class _SharedScan:
    def __init__(self, data: bytes, start: int, nonce: int, synced: int) -> None:
        self.data = data
        self.start = start
        self.nonce = nonce
        self.salt = salt_of(nonce)
        self.mark = group_mark_of(nonce)
        self.end_mark = end_mark_of(nonce)
        self.footer_mark = footer_mark_of(nonce).to_bytes(8, "little")
        self.written = len(data.rstrip(b"\0"))
        self.synced = max(start, synced)

    def run(self) -> Iterator[Found]:
        at = 0
        while True:
            group = decode_group_header(self.data, at, self.nonce)
            if group is not None:
                self.synced = max(self.synced, group.synced)
                end = at + group.size
                torn_at = yield from self._records(at, group.records, end)
                if torn_at is not None:
                    yield End(self.start + torn_at, SharedScanStop.TORN, self.synced)
                    return
                at = end
                continue
            stop = self._stop_at(at)
            if stop is not None:
                yield End(self.start + at, stop, self.synced)
                return
            yield Invalid(self.start + at, None, "the header of a group is missing or fails its checksum")
            behind = self._next_group(at + 1)
            if behind is None:
                yield End(self.start + at, SharedScanStop.LOST, self.synced)
                return
            at = behind

    def _records(self, begin: int, count: int, end: int) -> Generator[Valid | Invalid, None, int | None]:
        """Yield the records of one group; return where a tail begins, if one does."""
        at = begin + GROUP_BYTES
        for _ in range(count):
            record = decode_record(self.data, at, self.salt)
            if record is not None:
                body = self.data[at + RECORD_BYTES : at + RECORD_BYTES + record.size]
                if len(body) == record.size and crc32c(body, self.salt) == record.body_crc:
                    yield Valid(self.start + at, record, body)
                    at += RECORD_BYTES + record.size
                    continue
            behind = at + RECORD_BYTES + (0 if record is None else record.size)
            if not self._was_whole(at, min(behind, end), begin, end):
                return at
            what = "a record" if record is None else f"the body of {record.term}.{record.index}"
            yield Invalid(self.start + at, record, f"{what} fails its checksum")
            if record is None:
                return None
            at += RECORD_BYTES + record.size
        # A file that ends in the mark lacks nothing, but for what was durable behind it.
        return at if end > len(self.data) and self.start + end >= self.synced else None

    def _stop_at(self, at: int) -> SharedScanStop | None:
        """Say why records end where no group begins; ``None`` if that is damage."""
        self._look_behind(at)
        if self.start + at < self.synced:
            return None
        if at >= self.written:
            return SharedScanStop.CLEAN
        if is_lead(self.data, at, self.nonce):
            return SharedScanStop.FOOTER
        mark_at = self.data.find(self.end_mark, at + GROUP_BYTES)
        if mark_at < 0:
            return SharedScanStop.TORN if self._may_begin(at) else None
        # Without a sync between them, a later group may stand where this one was never written.
        if self.data[at + GROUP_BYTES - 1] == 0:
            return SharedScanStop.TORN
        return None if self._was_whole(at, at + GROUP_BYTES, at, mark_at + END_MARK_BYTES) else SharedScanStop.TORN

    def _may_begin(self, at: int) -> bool:
        """Say whether a crash may have left there what a group or a footer begins with: some bytes of that, or none."""
        return self.data[at : at + 1] in (b"\0", self.mark[:1], self.footer_mark[:1])

    def _was_whole(self, at: int, stop: int, begin: int, end: int) -> bool:
        """Say whether bytes that are invalid now, from ``at`` to ``stop``, were valid once.

        Args:
            begin, end: where the group begins and ends that they are part of."""
        self._look_behind(at)
        if self.start + at < self.synced:
            return True
        was_ended = end <= len(self.data) and self.data[end - END_MARK_BYTES : end] == self.end_mark
        return was_ended and not self._has_blank_sector(at, stop, begin, end)

    def _has_blank_sector(self, at: int, stop: int, begin: int, end: int) -> bool:
        """Say whether a sector of what stands from ``at`` to ``stop`` is zero, as far as it is the group's."""
        first = at - (self.start + at) % SECTOR_BYTES
        sectors = range(first, stop, SECTOR_BYTES)
        return any(not self.data[max(one, begin) : min(one + SECTOR_BYTES, end)].strip(b"\0") for one in sectors)

    def _look_behind(self, at: int) -> None:
        """Learn how far the segment was durable from every group behind a place, and from a footer."""
        found = self._next_group(at + 1)
        while found is not None:
            group = decode_group_header(self.data, found, self.nonce)
            assert group is not None
            self.synced = max(self.synced, group.synced)
            found = self._next_group(found + 1)
        footer = self.data.find(self.footer_mark, at, self.written)
        while footer >= 0:
            if is_lead(self.data, footer, self.nonce):  # It was written when all before it was durable.
                self.synced = max(self.synced, self.start + footer)
            footer = self.data.find(self.footer_mark, footer + 1, self.written)

    def _next_group(self, at: int) -> int | None:
        found = self.data.find(self.mark, at, self.written)
        while found >= 0:
            if decode_group_header(self.data, found, self.nonce) is not None:
                return found
            found = self.data.find(self.mark, found + 1, self.written)
        return None


def index_by_scan(data: bytes, start: int, nonce: int) -> SharedSegmentIndex:
    """Return the places of the entries in a closed segment, of which ``data`` are all records.

    What is damaged is left out: whoever looks for it does not find it."""
    index = SharedSegmentIndex()
    for found in scan(data, start, nonce):
        if isinstance(found, Valid):
            note_place(index, found)
    return index


def note_place(index: SharedSegmentIndex, found: Valid) -> None:
    """Bring an index up to date with the next record of its segment."""
    record = found.record
    if record.kind == RecordKind.ENTRY:
        index.replace(record.log, record.index)
        index.add(record.log, record.index, found.offset, record.size)
    elif record.kind == RecordKind.MOVED:
        index.add(record.log, record.index, found.offset, record.size)
    elif record.kind == RecordKind.VOID:
        index.cut(record.log, record.index)
    elif record.kind == RecordKind.DROP:
        index.forget(record.log)
