"""Scans the records of one segment in order: for recovery, and for a segment without a footer.

Invalid bytes are either damage or a tail that a crash left. They are damage if they were durable once, as the synced
offset of a later group shows. They are also damage if their group was written completely: it has its end mark, and no
invalid sector is zero, as space is until it is written. Such bytes have changed since. A scan reports damage and
continues behind it, because the records that follow may be of other logs. All other invalid bytes are a tail, and the
scan ends before it."""

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
    """Why a scan stopped."""

    CLEAN = auto()  #: The data end here, or only zeros follow.
    FOOTER = auto()  #: A footer begins here, complete or not.
    TORN = auto()  #: Invalid bytes, part of which were never written.
    LOST = auto()  #: Damage without a valid group behind it.


class ValidRecord(NamedTuple):
    """A valid record at an offset of the file, with its body."""

    offset: int
    record: SharedRecord
    body: bytes


class InvalidBytes(NamedTuple):
    """Damage at an offset of the file.

    ``record`` is the record's fixed part if at least that is valid: then the damage is of that log
    alone. Otherwise it may be of any."""

    offset: int
    record: SharedRecord | None
    detail: str


class ScanEnd(NamedTuple):
    """The end of the valid records. ``synced`` is the highest synced offset that a group records."""

    offset: int
    stop: SharedScanStop
    synced: int


ScanItem: TypeAlias = ValidRecord | InvalidBytes | ScanEnd


def scan(data: bytes, start: int, nonce: int, synced: int = 0) -> Iterator[ScanItem]:
    """Yield the records of a segment, damage included; the last one is the ``ScanEnd``.

    Args:
        data: bytes of the segment from offset ``start`` on.
        start: offset of the file where the records begin.
        nonce: nonce of the segment.
        synced: the file is known to have been durable up to this offset.
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

    def run(self) -> Iterator[ScanItem]:
        at = 0
        while True:
            group = decode_group_header(self.data, at, self.nonce)
            if group is not None:
                self.synced = max(self.synced, group.synced)
                end = at + group.size
                torn_at = yield from self._records(at, group.records, end)
                if torn_at is not None:
                    yield ScanEnd(self.start + torn_at, SharedScanStop.TORN, self.synced)
                    return
                at = end
                continue
            stop = self._stop_at(at)
            if stop is not None:
                yield ScanEnd(self.start + at, stop, self.synced)
                return
            yield InvalidBytes(self.start + at, None, "the header of a group is missing or fails its checksum")
            behind = self._next_group(at + 1)
            if behind is None:
                yield ScanEnd(self.start + at, SharedScanStop.LOST, self.synced)
                return
            at = behind

    def _records(self, begin: int, count: int, end: int) -> Generator[ValidRecord | InvalidBytes, None, int | None]:
        """Yield the records of one group; return where a tail begins, if one does."""
        at = begin + GROUP_BYTES
        for _ in range(count):
            record = decode_record(self.data, at, self.salt)
            if record is not None:
                body = self.data[at + RECORD_BYTES : at + RECORD_BYTES + record.size]
                if len(body) == record.size and crc32c(body, self.salt) == record.body_crc:
                    yield ValidRecord(self.start + at, record, body)
                    at += RECORD_BYTES + record.size
                    continue
            behind = at + RECORD_BYTES + (0 if record is None else record.size)
            if not self._was_whole(at, min(behind, end), begin, end):
                return at
            what = "a record" if record is None else f"the body of {record.term}.{record.index}"
            yield InvalidBytes(self.start + at, record, f"{what} fails its checksum")
            if record is None:
                return None
            at += RECORD_BYTES + record.size
        # A file that ends within the end mark lacks no record, unless data behind it were durable.
        return at if end > len(self.data) and self.start + end >= self.synced else None

    def _stop_at(self, at: int) -> SharedScanStop | None:
        """Return why the records end at an offset where no valid group begins; ``None`` if that is damage."""
        self._find_synced(at)
        if self.start + at < self.synced:
            return None
        if at >= self.written:
            return SharedScanStop.CLEAN
        if is_lead(self.data, at, self.nonce):
            return SharedScanStop.FOOTER
        mark_at = self.data.find(self.end_mark, at + GROUP_BYTES)
        if mark_at < 0:
            return SharedScanStop.TORN if self._may_begin(at) else None
        # Without a sync between two groups, the later one may be on the disk although this one was never written.
        if self.data[at + GROUP_BYTES - 1] == 0:
            return SharedScanStop.TORN
        return None if self._was_whole(at, at + GROUP_BYTES, at, mark_at + END_MARK_BYTES) else SharedScanStop.TORN

    def _may_begin(self, at: int) -> bool:
        """Say whether a crash may have left the first bytes of a group or a footer here, or none of its bytes."""
        return self.data[at : at + 1] in (b"\0", self.mark[:1], self.footer_mark[:1])

    def _was_whole(self, at: int, stop: int, begin: int, end: int) -> bool:
        """Say whether the invalid bytes from ``at`` to ``stop`` were valid once.

        Args:
            begin, end: begin and end of their group."""
        self._find_synced(at)
        if self.start + at < self.synced:
            return True
        was_ended = end <= len(self.data) and self.data[end - END_MARK_BYTES : end] == self.end_mark
        return was_ended and not self._has_blank_sector(at, stop, begin, end)

    def _has_blank_sector(self, at: int, stop: int, begin: int, end: int) -> bool:
        """Say whether a sector of the range from ``at`` to ``stop`` is zero, as far as it belongs to the group."""
        first = at - (self.start + at) % SECTOR_BYTES
        sectors = range(first, stop, SECTOR_BYTES)
        return any(not self.data[max(one, begin) : min(one + SECTOR_BYTES, end)].strip(b"\0") for one in sectors)

    def _find_synced(self, at: int) -> None:
        """Raise ``synced`` to the highest offset that groups and footers behind ``at`` show as durable."""
        found = self._next_group(at + 1)
        while found is not None:
            group = decode_group_header(self.data, found, self.nonce)
            assert group is not None
            self.synced = max(self.synced, group.synced)
            found = self._next_group(found + 1)
        footer = self.data.find(self.footer_mark, at, self.written)
        while footer >= 0:
            if is_lead(self.data, footer, self.nonce):  # A footer is written when everything before it is durable.
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
    """Return the index of a closed segment, whose records are ``data``.

    Damaged records are left out, so a reader does not find them."""
    index = SharedSegmentIndex()
    for found in scan(data, start, nonce):
        if isinstance(found, ValidRecord):
            index_record(index, found)
    return index


def index_record(index: SharedSegmentIndex, found: ValidRecord) -> None:
    """Update an index with the next record of its segment."""
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
