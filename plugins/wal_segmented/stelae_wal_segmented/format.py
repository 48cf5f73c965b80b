"""Encodes and decodes the bytes of a segment: its header, its groups of entries, and their checksums.

::

    segment  header | group | group | ... | footer (once closed)
    group    group header | entry | entry | ... | end mark
    entry    entry header | body

All integers are little-endian. Each segment has its own 64-bit *nonce*. The lower half of the nonce is the start value
of every CRC32C in the segment (the salt). The whole nonce is part of the marks of group headers and footers. So bytes
that another segment left in the same space never pass for bytes of this segment (durability rule 6).

A group is what one commit writes. Its header has the *synced offset*: the segment was known to be durable up to this
offset when the group was written. Invalid bytes before the highest synced offset were durable once, so they are damage.
Only bytes after it can be a tail that a crash tore. The *end mark* shows that a group was written completely, except
for sectors that the disk writes in another order.

A segment in a re-used file has a table after its header with digests of what each sector held before (see
``stelae_wal_segmented.sectors``). The groups begin after the table."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from stelae.spi.errors import BadIdentifier, Corrupt, FutureVersion
from stelae.spi.ids import LogId, OpId, TabletId, tablet_id
from stelae_wal_segmented.sectors import ReusedSpace

FORMAT_VERSION = 4
SEGMENT_MAGIC = b"stelwals"

_SEGMENT = struct.Struct("<8sHHIQQQQQQQQ64sIQ")
_GROUP = struct.Struct("<QQQQQI")
_ENTRY = struct.Struct("<BBxxIIQQQ")
_CRC = struct.Struct("<I")

SEGMENT_HEADER_BYTES = _SEGMENT.size + _CRC.size
LAST_BYTE = b"\xe5"
"""The last byte of a group header and of a group. Where it is zero, the header or group was not written completely."""

GROUP_HEADER_BYTES = _GROUP.size + _CRC.size + len(LAST_BYTE)
ENTRY_HEADER_BYTES = _ENTRY.size + _CRC.size
END_MARK_BYTES = 8

NEW_SPACE = ReusedSpace(0, 0, SEGMENT_HEADER_BYTES)
"""The space of a segment in a new file, which reads as zeros."""

_GROUP_MARK = 0x5B9D_1E0C_73A2_F681
_FOOTER_MARK = 0xC6E4_8A37_0F51_D92B
_END_MARK = 0x3D17_C05A_B986_E42F
_NOT_ZERO = 0x03
"""Two bits that are set in the first byte of every mark. A sector may hold only this byte of a group. With two bits set
it differs from a sector that was never written, even after one bit has changed."""

ENTRY_LEAD = 0x35
"""The first byte of every entry. It is not zero, because zeros of the entry before may fill the rest of its sector."""

pack_group = _GROUP.pack
pack_entry = _ENTRY.pack


def salt_of(nonce: int) -> int:
    """Return the start value of every CRC32C in the segment with this nonce."""
    return nonce & 0xFFFF_FFFF


def group_mark_of(nonce: int) -> int:
    """Return the first field of every group header in the segment with this nonce."""
    return (nonce ^ _GROUP_MARK) | _NOT_ZERO


def footer_mark_of(nonce: int) -> int:
    """Return the first field of the footer of the segment with this nonce."""
    return (nonce ^ _FOOTER_MARK) | _NOT_ZERO


def end_mark_of(nonce: int) -> bytes:
    """Return the last bytes of every group and footer in the segment with this nonce. The last byte is not zero."""
    return (nonce ^ _END_MARK).to_bytes(8, "little")[:-1] + LAST_BYTE


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHeader:
    """The first bytes of a segment. They are durable before the segment gets its name.

    Attributes:
        log: the log that the segment belongs to.
        sequence: number of the segment in its log, from 1.
        nonce: unique to this segment.
        previous: op id of the last entry before the segment's first entry.
        previous_nonce: nonce of the segment before this one, 0 if there was none.
        previous_end: offset where the data of that segment end; they were durable up to there.
        commit_hint: highest commit index that was recorded before this segment.
        space: the space of the segment; says whether it was used before.
    """

    log: LogId
    sequence: int
    nonce: int
    previous: OpId
    previous_nonce: int
    previous_end: int
    commit_hint: int
    space: ReusedSpace = NEW_SPACE

    @property
    def data_start(self) -> int:
        """Offset of the first group."""
        return self.space.data_start

    def encode(self) -> bytes:
        """Return the header's bytes."""
        raw = _SEGMENT.pack(
            SEGMENT_MAGIC,
            FORMAT_VERSION,
            SEGMENT_HEADER_BYTES,
            self.space.sectors,
            self.nonce,
            self.log.generation,
            self.sequence,
            self.previous.term,
            self.previous.index,
            self.previous_nonce,
            self.previous_end,
            self.commit_hint,
            self.log.tablet_id.encode(),
            self.space.crc,
            self.space.data_start,
        )
        return raw + _CRC.pack(crc32c(raw))


def decode_segment_header(data: bytes, path: str) -> SegmentHeader:
    """Return the header at the beginning of ``data``.

    Raises:
        Corrupt: the data are too short, begin with another magic, or fail their checksum.
        FutureVersion: the format is newer than this release.
    """
    raw, tail = data[: _SEGMENT.size], data[_SEGMENT.size : SEGMENT_HEADER_BYTES]
    if len(tail) < _CRC.size:
        raise Corrupt("the segment header is truncated", path=path, offset=len(data))
    fields = _SEGMENT.unpack(raw)
    if fields[0] != SEGMENT_MAGIC:
        raise Corrupt("the file does not begin with the magic of a segment", path=path, offset=0)
    if _CRC.unpack(tail)[0] != crc32c(raw):
        raise Corrupt("the segment header fails its checksum", path=path, offset=0)
    if fields[1] > FORMAT_VERSION:
        fact = f"segment format {fields[1]} is newer than {FORMAT_VERSION}, the newest known here"
        raise FutureVersion(fact, path=path, offset=8)
    if fields[1] < FORMAT_VERSION:
        fact = f"no release wrote segment format {fields[1]}; the first one wrote {FORMAT_VERSION}"
        raise Corrupt(fact, path=path, offset=8)
    return SegmentHeader(
        log=LogId(tablet_of(fields[12], path), fields[5]),
        sequence=fields[6],
        nonce=fields[4],
        previous=OpId(fields[7], fields[8]),
        previous_nonce=fields[9],
        previous_end=fields[10],
        commit_hint=fields[11],
        space=ReusedSpace(fields[3], fields[13], fields[14]),
    )


def tablet_of(padded: bytes, path: str) -> TabletId:
    """Return the tablet id in a field of fixed length that is padded with zeros.

    Raises:
        Corrupt: the field is not a valid tablet id.
    """
    try:
        return tablet_id(padded.rstrip(b"\0").decode())
    except (UnicodeDecodeError, BadIdentifier) as error:
        raise Corrupt("it names a tablet with an invalid id", path=path, offset=0) from error


@dataclass(frozen=True, slots=True)
class GroupHeader:
    """The header of a group: see the module.

    Attributes:
        synced: the segment was durable up to this offset when the group was written.
        commit_hint: the leader's commit index as far as it was known; 0: unknown.
        replace_from: the group voids every entry at or above this index; 0: a plain append.
        size: length of the group in bytes, with this header and the end mark.
        count: number of entries.
    """

    synced: int
    commit_hint: int
    replace_from: int
    size: int
    count: int


def encode_group_header(group: GroupHeader, nonce: int) -> bytes:
    """Return a group header's bytes."""
    raw = pack_group(group_mark_of(nonce), group.synced, group.commit_hint, group.replace_from, group.size, group.count)
    return raw + crc32c(raw, salt_of(nonce)).to_bytes(4, "little") + LAST_BYTE


def decode_group_header(data: bytes, nonce: int) -> GroupHeader | None:
    """Return the group header at the beginning of ``data``, or ``None`` if it is no valid header of this segment."""
    if len(data) < GROUP_HEADER_BYTES:
        return None
    mark, synced, hint, replace_from, size, count = _GROUP.unpack_from(data)
    if mark != group_mark_of(nonce) or data[GROUP_HEADER_BYTES - 1 : GROUP_HEADER_BYTES] != LAST_BYTE:
        return None
    if _CRC.unpack_from(data, _GROUP.size)[0] != crc32c(data[: _GROUP.size], salt_of(nonce)):
        return None
    return GroupHeader(synced, hint, replace_from, size, count)


class EntryHeader(NamedTuple):
    """What is stored before the body of an entry. ``size`` and ``body_crc`` are those of the body."""

    size: int
    body_crc: int
    op_id: OpId
    timestamp: int
    kind: int


def stored_bytes_at(data: bytes, at: int) -> int:
    """Return the length of an entry's body, whose header at ``data[at]`` is known to be valid."""
    return int(_ENTRY.unpack_from(data, at)[2])


def decode_entry_header(data: bytes, salt: int) -> EntryHeader | None:
    """Return the entry header at the beginning of ``data``, or ``None`` if it fails its checksum."""
    if len(data) < ENTRY_HEADER_BYTES:
        return None
    if _CRC.unpack_from(data, _ENTRY.size)[0] != crc32c(data[: _ENTRY.size], salt):
        return None
    _, kind, size, body_crc, term, index, timestamp = _ENTRY.unpack_from(data)
    return EntryHeader(size, body_crc, OpId(term, index), timestamp, kind)
