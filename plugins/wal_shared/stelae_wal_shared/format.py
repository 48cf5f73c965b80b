"""Encodes and decodes the bytes of a segment: its groups, its records, and their checksums.

::

    segment  head, twice | group | group | ... | footer once closed
    group    group header | record | record | ... | end mark
    header   mark, synced offset, length, count, CRC32C, a byte that is not zero
    record   fixed part, CRC32C | body

All integers are little-endian. Each segment has a 64-bit *nonce* that no other segment of the node has. The lower half
of the nonce is the start value of every CRC32C in the segment, and the whole nonce is part of the marks. So bytes of
another segment never pass for bytes of this one (durability rule 6).

A group is one write. Its *synced offset* says how far the segment was durable before it. Invalid bytes before the
highest synced offset were durable once, so they are damage and not a tail. The *end mark* of a group shows that it was
written completely.

A record belongs to one log and has the log's number. The records of a log are numbered without gaps (``order``). So a
lost record is noticed at the next record of its log. The kinds are in ``RecordKind``."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

FORMAT_VERSION = 4

_GROUP = struct.Struct("<QQQI")
_RECORD = struct.Struct("<HIIIBBQQQQQ")
_CRC = struct.Struct("<I")

LAST_BYTE = b"\xe5"
"""The last byte of a group header and of a group. Where it is zero, the header or group was not written completely."""

GROUP_BYTES = _GROUP.size + _CRC.size + len(LAST_BYTE)
RECORD_BYTES = _RECORD.size + _CRC.size
END_MARK_BYTES = 8

_GROUP_MARK = 0x1F6A_93D4_58BE_C027
_FOOTER_MARK = 0xA4C1_0B7E_E932_6D58
_END_MARK = 0x72D8_3EF5_06A9_B14C
_NOT_ZERO = 0x03
"""Two bits that are set in the first byte of every mark. A sector may hold only this byte of a group. With two bits set
it differs from a sector that was never written, even after one bit has changed."""

RECORD_LEAD = 0x3535
"""The first bytes of every record. They are not zero, because zeros of the record before may fill its last sector."""

RECORD_FIELDS_BYTES = _RECORD.size

pack_record = _RECORD.pack
unpack_record_from = _RECORD.unpack_from


class RecordKind(IntEnum):
    """The kind of a record. Stored as one byte; numbers are never reused."""

    ENTRY = 1  #: An entry. Earlier entries at or above its index are void.
    MOVED = 2  #: A second copy of an entry, so that its old segment can be removed. Voids nothing.
    VOID = 3  #: All entries at or above the index are void.
    CREATE = 4  #: The log is created and begins behind the op id. The body is its name.
    BASE = 5  #: Entries at or below the op id are collected.
    DROP = 6  #: The log is dropped.


class SharedGroupHeader(NamedTuple):
    """The header of a group. ``size`` is the length of the whole group, with the end mark."""

    synced: int
    size: int
    records: int


class SharedRecord(NamedTuple):
    """The fixed part of a record. ``size`` and ``body_crc`` are those of the body that follows."""

    size: int
    body_crc: int
    log: int
    kind: int
    entry_kind: int
    order: int
    term: int
    index: int  # type: ignore[assignment]
    timestamp: int
    commit_hint: int


def salt_of(nonce: int) -> int:
    """Return the start value of every CRC32C in the segment with this nonce."""
    return nonce & 0xFFFF_FFFF


def group_mark_of(nonce: int) -> bytes:
    """Return the first bytes of every group in the segment with this nonce."""
    return _group_mark(nonce).to_bytes(8, "little")


def _group_mark(nonce: int) -> int:
    return (nonce ^ _GROUP_MARK) | _NOT_ZERO


def end_mark_of(nonce: int) -> bytes:
    """Return the last bytes of every group in the segment with this nonce. The last byte is not zero."""
    return (nonce ^ _END_MARK).to_bytes(8, "little")[:-1] + LAST_BYTE


def footer_mark_of(nonce: int) -> int:
    """Return the first field of the footer of the segment with this nonce."""
    return (nonce ^ _FOOTER_MARK) | _NOT_ZERO


def encode_group_header(nonce: int, synced: int, size: int, count: int) -> bytes:
    """Return the header of a group with ``count`` records; ``size`` is the length of the whole group."""
    raw = _GROUP.pack(_group_mark(nonce), synced, size, count)
    return raw + crc32c(raw, nonce & 0xFFFF_FFFF).to_bytes(4, "little") + LAST_BYTE


def decode_group_header(data: bytes, at: int, nonce: int) -> SharedGroupHeader | None:
    """Return the group header at ``data[at]``, or ``None`` if there is no valid header of this segment."""
    raw = data[at : at + GROUP_BYTES]
    if len(raw) < GROUP_BYTES or raw[:8] != group_mark_of(nonce) or raw[-1:] != LAST_BYTE:
        return None
    if _CRC.unpack_from(raw, _GROUP.size)[0] != crc32c(raw[: _GROUP.size], salt_of(nonce)):
        return None
    _, synced, size, count = _GROUP.unpack_from(raw)
    return SharedGroupHeader(synced, size, count)


def encode_record(record: SharedRecord, salt: int) -> bytes:
    """Return the fixed part of a record."""
    raw = pack_record(RECORD_LEAD, *record)
    return raw + crc32c(raw, salt).to_bytes(4, "little")


def decode_record(data: bytes, at: int, salt: int) -> SharedRecord | None:
    """Return the record whose fixed part is at ``data[at]``, or ``None`` if it fails its checksum."""
    raw = data[at : at + RECORD_BYTES]
    if len(raw) < RECORD_BYTES or _CRC.unpack_from(raw, _RECORD.size)[0] != crc32c(raw[: _RECORD.size], salt):
        return None
    return SharedRecord(*_RECORD.unpack_from(raw)[1:])
