"""Encodes the records of one write as a group, and decodes single entries."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from crc32c import crc32c

from stelae.spi.errors import Corrupt
from stelae.spi.ids import OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.services import Buffer
from stelae_wal_shared.format import (
    END_MARK_BYTES,
    GROUP_BYTES,
    RECORD_BYTES,
    RECORD_FIELDS_BYTES,
    RECORD_LEAD,
    RecordKind,
    decode_record,
    encode_group_header,
    end_mark_of,
    pack_record,
    salt_of,
    unpack_record_from,
)

_PLAIN = (int(RecordKind.ENTRY), int(RecordKind.MOVED))
_ENTRY_KINDS = {int(kind): kind for kind in EntryKind}


class RecordGroup:
    """The records that one write appends to a segment. Bodies are not copied.

    Args:
        nonce: nonce of the segment.
        at: offset of the group.
        synced: the segment is durable up to this offset.

    Attributes:
        size: length in bytes so far, with the group's header and its end mark.
        offsets: offsets of the entries' records, in the order in which they were added.
    """

    __slots__ = ("_at", "_buffers", "_nonce", "_others", "_salt", "_synced", "offsets", "size")

    def __init__(self, nonce: int, at: int, synced: int) -> None:
        self._nonce = nonce
        self._salt = salt_of(nonce)
        self._at = at
        self._synced = synced
        self._buffers: list[Buffer] = [b""]
        self._others = 0
        self.size = GROUP_BYTES + END_MARK_BYTES
        self.offsets: list[int] = []

    def add_entries(self, kind: int, log: int, order: int, entries: Sequence[Entry], hint: int) -> None:
        """Add entries of a log, as records numbered from ``order`` on. ``kind`` is the number of a ``RecordKind``."""
        salt, buffers, offsets = self._salt, self._buffers, self.offsets
        begin = offset = self._at + self.size - END_MARK_BYTES
        for entry in entries:
            body = entry.body
            size = len(body)
            term, index = entry.op_id
            crc, timestamp = crc32c(body, salt), entry.timestamp
            raw = pack_record(RECORD_LEAD, size, crc, log, kind, entry.kind, order, term, index, timestamp, hint)
            offsets.append(offset)
            buffers.append(raw + crc32c(raw, salt).to_bytes(4, "little"))
            if size:
                buffers.append(body)
            offset += RECORD_BYTES + size
            order += 1
        self.size += offset - begin

    def add(self, kind: RecordKind, log: int, order: int, op_id: OpId, hint: int = 0, body: bytes = b"") -> None:
        """Add a record that is not an entry."""
        term, index = op_id
        raw = pack_record(RECORD_LEAD, len(body), crc32c(body, self._salt), log, kind, 0, order, term, index, 0, hint)
        self._buffers.append(raw + crc32c(raw, self._salt).to_bytes(4, "little"))
        if body:
            self._buffers.append(body)
        self._others += 1
        self.size += RECORD_BYTES + len(body)

    def buffers(self) -> list[Buffer]:
        """Return the complete bytes of the group."""
        records = len(self.offsets) + self._others
        self._buffers[0] = encode_group_header(self._nonce, self._synced, self.size, records)
        return [*self._buffers, end_mark_of(self._nonce)]


def decode_entries(data: bytes, offsets: array[int], nonce: int, log: int, first: int, path: str) -> list[Entry]:
    """Return the entries of a log from index ``first`` on, whose records are at these offsets of the file.

    Args:
        data: the file from the first offset on.
        offsets: one offset for each entry.
        nonce: nonce of the segment.
        log: number of the log.
        first: index of the first entry.
        path: of the file.

    Raises:
        Corrupt: as ``decode_entry``, which decodes again any record that is not valid.
    """
    salt, start, entries = salt_of(nonce), offsets[0], []
    for index, offset in enumerate(offsets, first):
        at = offset - start
        fixed = data[at : at + RECORD_FIELDS_BYTES]
        behind = at + RECORD_BYTES
        if crc32c(fixed, salt).to_bytes(4, "little") == data[at + RECORD_FIELDS_BYTES : behind]:
            _, size, crc, number, kind, entry_kind, _, term, at_index, timestamp, _ = unpack_record_from(fixed)
            body, known = data[behind : behind + size], _ENTRY_KINDS.get(entry_kind)
            whole = len(body) == size and crc32c(body, salt) == crc
            if whole and number == log and at_index == index and kind in _PLAIN and known is not None:
                entries.append(Entry(OpId(term, index), known, timestamp, body))
                continue
        entries.append(decode_entry(data, at, nonce, log, index, path, offset))
    return entries


def decode_entry(data: bytes, at: int, nonce: int, log: int, index: int, path: str, offset: int) -> Entry:
    """Return the entry of a log and an index, whose record is at ``data[at]`` and at ``offset`` of the file.

    Raises:
        Corrupt: a checksum fails, or the record is of another entry.
    """
    salt = salt_of(nonce)
    record = decode_record(data, at, salt)
    if record is None:
        raise Corrupt("the record of an entry fails its checksum", path=path, offset=offset)
    if record.kind not in (RecordKind.ENTRY, RecordKind.MOVED) or record.log != log or record.index != index:
        fact = f"found {record.term}.{record.index} of log number {record.log} in place of entry {index} of {log}"
        raise Corrupt(fact, path=path, offset=offset)
    op_id = OpId(record.term, record.index)
    body = data[at + RECORD_BYTES : at + RECORD_BYTES + record.size]
    if len(body) < record.size or crc32c(body, salt) != record.body_crc:
        raise Corrupt(f"the body of entry {op_id} fails its checksum", path=path, offset=offset)
    try:
        kind = EntryKind(record.entry_kind)
    except ValueError as error:
        raise Corrupt(f"entry kind {record.entry_kind} is unknown", path=path, offset=offset) from error
    return Entry(op_id, kind, record.timestamp, body)
