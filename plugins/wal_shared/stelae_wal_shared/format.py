"""Bytes of a segment: what marks a group, what stands before each record, and the salt of both.

::

    segment  head, twice | group | group | ... | footer once closed
    group    group header | record | record | ... | end mark
    header   mark, synced offset, length, count, CRC32C, a byte that is not zero
    record   fixed part, CRC32C | body

All integers are little-endian. A segment draws a 64-bit *nonce* that no other segment of the node
has. Its lower half is the value from which every CRC32C of the segment starts, and the nonce is
part of the marks: bytes of another segment never pass for bytes of this one (durability rule 6).

A group is one write. Its *synced offset* tells how far the segment was durable before it: what is
invalid before the highest synced offset was durable once, so it is damage and not a tail. Its *end mark*
tells whether all of it was written.

A record belongs to one log, which it names by its number. Per log, records are counted without a
gap (``order``): a lost record is noticed at the log's next one. The kinds are in ``RecordKind``."""

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
"""Of a group's header and of a group: where it is zero, what it ends was not written to its end."""

GROUP_BYTES = _GROUP.size + _CRC.size + len(LAST_BYTE)
RECORD_BYTES = _RECORD.size + _CRC.size
END_MARK_BYTES = 8

_GROUP_MARK = 0x1F6A_93D4_58BE_C027
_FOOTER_MARK = 0xA4C1_0B7E_E932_6D58
_END_MARK = 0x72D8_3EF5_06A9_B14C
_NOT_ZERO = 0x03
"""Two bits of the first byte of a mark, whatever the nonce: a sector may hold no more of a group than that byte, and is
told from one that was never written even if a bit of it changes."""

RECORD_LEAD = 0x3535
"""What every record begins with, for the same reason: zeros of the record before may fill the rest of its sector."""

RECORD_FIELDS_BYTES = _RECORD.size

pack_record = _RECORD.pack
unpack_record_from = _RECORD.unpack_from


class RecordKind(IntEnum):
    """What a record says of its log. Stored as one byte; numbers are never reused."""

    ENTRY = 1  #: An entry; everything written earlier at or above its index is void.
    MOVED = 2  #: The entry of this index, once more, so that its old segment can go. Voids nothing.
    VOID = 3  #: Everything at or above the index is void.
    CREATE = 4  #: The log exists and begins behind the op id; the body is its name.
    BASE = 5  #: Everything at or below the op id may be gone.
    DROP = 6  #: The log is gone.


class SharedGroupHeader(NamedTuple):
    """What stands before the records of one write; ``size`` is the length of all of it, with the end mark."""

    synced: int
    size: int
    records: int


class SharedRecord(NamedTuple):
    """The fixed part of a record. ``size`` and ``body_crc`` are those of the body behind it."""

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
    """Start value of every CRC32C in the segment of this nonce."""
    return nonce & 0xFFFF_FFFF


def group_mark_of(nonce: int) -> bytes:
    """First bytes of every group in the segment of this nonce."""
    return _group_mark(nonce).to_bytes(8, "little")


def _group_mark(nonce: int) -> int:
    return (nonce ^ _GROUP_MARK) | _NOT_ZERO


def end_mark_of(nonce: int) -> bytes:
    """Last bytes of every group in the segment of this nonce; the very last one is no zero, whatever the nonce."""
    return (nonce ^ _END_MARK).to_bytes(8, "little")[:-1] + LAST_BYTE


def footer_mark_of(nonce: int) -> int:
    """First field of the footer of the segment of this nonce."""
    return (nonce ^ _FOOTER_MARK) | _NOT_ZERO


def encode_group_header(nonce: int, synced: int, size: int, count: int) -> bytes:
    """Return the bytes that stand before ``count`` records; ``size`` includes them."""
    raw = _GROUP.pack(_group_mark(nonce), synced, size, count)
    return raw + crc32c(raw, nonce & 0xFFFF_FFFF).to_bytes(4, "little") + LAST_BYTE


def decode_group_header(data: bytes, at: int, nonce: int) -> SharedGroupHeader | None:
    """Return the group header at ``data[at]``; ``None`` if there is none of this segment."""
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
    """Return the record whose fixed part is at ``data[at]``; ``None`` if its checksum fails."""
    raw = data[at : at + RECORD_BYTES]
    if len(raw) < RECORD_BYTES or _CRC.unpack_from(raw, _RECORD.size)[0] != crc32c(raw[: _RECORD.size], salt):
        return None
    return SharedRecord(*_RECORD.unpack_from(raw)[1:])
