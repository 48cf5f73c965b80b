"""Bytes of a segment: header, groups of entries, and the salt that ties them to one segment.

::

    segment  header | group | group | ... | footer (once closed)
    group    group header | entry | entry | ... | end mark
    entry    entry header | body

All integers are little-endian. A segment has a 64-bit *nonce* of its own. Its lower half is where every CRC32C of the
segment starts (the salt), and both its halves mark group headers and footers: bytes that another segment left in the
same space can never pass for bytes of this one (durability rule 6).

A group is what one commit wrote. Its header tells the *synced offset*: how far the segment was
known to be durable when the group was written. Whatever is invalid before the highest synced offset
found was once durable, so it is damage; only behind it can be a tail that a crash tore. The *end mark* tells
whether all of a group was written: what it stands behind was, but for sectors that a disk writes in another order.

A segment in space that a collected one has left has a table of what stood there behind its header (see
``stelae_wal_segmented.sectors``), and the groups begin behind that."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from stelae.spi.errors import BadIdentifier, Corrupt, FutureVersion
from stelae.spi.ids import LogId, OpId, TabletId, tablet_id
from stelae_wal_segmented.sectors import UsedSpace

FORMAT_VERSION = 4
SEGMENT_MAGIC = b"stelwals"

_SEGMENT = struct.Struct("<8sHHIQQQQQQQQ64sIQ")
_GROUP = struct.Struct("<QQQQQI")
_ENTRY = struct.Struct("<BBxxIIQQQ")
_CRC = struct.Struct("<I")

SEGMENT_HEADER_BYTES = _SEGMENT.size + _CRC.size
LAST_BYTE = b"\xe5"
"""Of a group's header and of a group: where it is zero, what it ends was not written to its end."""

GROUP_HEADER_BYTES = _GROUP.size + _CRC.size + len(LAST_BYTE)
ENTRY_HEADER_BYTES = _ENTRY.size + _CRC.size
END_MARK_BYTES = 8

NEW_SPACE = UsedSpace(0, 0, SEGMENT_HEADER_BYTES)
"""Of a segment whose space was zeros."""

_GROUP_MARK = 0x5B9D_1E0C_73A2_F681
_FOOTER_MARK = 0xC6E4_8A37_0F51_D92B
_END_MARK = 0x3D17_C05A_B986_E42F
_NOT_ZERO = 0x03
"""Two bits of the first byte of a mark, whatever the nonce: a sector may hold no more of a group than that byte, and is
told from one that was never written even if a bit of it changes."""

ENTRY_LEAD = 0x35
"""First byte of every entry, for the same reason: zeros of the entry before may fill the rest of its sector."""

pack_group = _GROUP.pack
pack_entry = _ENTRY.pack


def salt_of(nonce: int) -> int:
    """Start value of every CRC32C in the segment of this nonce."""
    return nonce & 0xFFFF_FFFF


def group_mark_of(nonce: int) -> int:
    """First field of every group header in the segment of this nonce."""
    return (nonce ^ _GROUP_MARK) | _NOT_ZERO


def footer_mark_of(nonce: int) -> int:
    """First field of the footer of the segment of this nonce."""
    return (nonce ^ _FOOTER_MARK) | _NOT_ZERO


def end_mark_of(nonce: int) -> bytes:
    """Last bytes of every group and of the footer in the segment of this nonce; the very last one is never zero."""
    return (nonce ^ _END_MARK).to_bytes(8, "little")[:-1] + LAST_BYTE


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHeader:
    """First bytes of a segment, durable before the segment gets its name.

    Attributes:
        log: whose log it is part of.
        sequence: its place among the segments of the log, from 1.
        nonce: drawn for this segment alone.
        previous: op id of the last entry before the segment's first.
        previous_nonce: nonce of the segment before it, 0 if there was none.
        previous_end: where the data of that segment end; they were durable up to there.
        commit_hint: highest commit index recorded before this segment.
        space: what is known of its space from before; that is nothing where it was new.
    """

    log: LogId
    sequence: int
    nonce: int
    previous: OpId
    previous_nonce: int
    previous_end: int
    commit_hint: int
    space: UsedSpace = NEW_SPACE

    @property
    def data_start(self) -> int:
        """Where the first group begins."""
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
        Corrupt: too short, another magic, or the checksum fails.
        FutureVersion: a format that this release does not know.
    """
    raw, tail = data[: _SEGMENT.size], data[_SEGMENT.size : SEGMENT_HEADER_BYTES]
    if len(tail) < _CRC.size:
        raise Corrupt("the segment header is cut short", path=path, offset=len(data))
    fields = _SEGMENT.unpack(raw)
    if fields[0] != SEGMENT_MAGIC:
        raise Corrupt("the segment header has another magic", path=path, offset=0)
    if _CRC.unpack(tail)[0] != crc32c(raw):
        raise Corrupt("the segment header fails its checksum", path=path, offset=0)
    if fields[1] > FORMAT_VERSION:
        fact = f"segment format {fields[1]} is newer than {FORMAT_VERSION}, the newest known here"
        raise FutureVersion(fact, path=path, offset=8)
    if fields[1] < FORMAT_VERSION:
        fact = f"segment format {fields[1]} is of no release; the first one wrote {FORMAT_VERSION}"
        raise Corrupt(fact, path=path, offset=8)
    return SegmentHeader(
        log=LogId(tablet_of(fields[12], path), fields[5]),
        sequence=fields[6],
        nonce=fields[4],
        previous=OpId(fields[7], fields[8]),
        previous_nonce=fields[9],
        previous_end=fields[10],
        commit_hint=fields[11],
        space=UsedSpace(fields[3], fields[13], fields[14]),
    )


def tablet_of(padded: bytes, path: str) -> TabletId:
    """Return the tablet id that stands in a fixed field, padded with zeros.

    Raises:
        Corrupt: no tablet has such an id.
    """
    try:
        return tablet_id(padded.rstrip(b"\0").decode())
    except (UnicodeDecodeError, BadIdentifier) as error:
        raise Corrupt("it names a tablet that cannot be", path=path, offset=0) from error


@dataclass(frozen=True, slots=True)
class GroupHeader:
    """What one commit wrote: see the module.

    Attributes:
        replace_from: 0 for a plain append.
        size: length of all of the group, this header and the end mark included.
        count: how many entries there are.
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
    """Return the group header that ``data`` is; ``None`` if it is not one of this segment."""
    if len(data) < GROUP_HEADER_BYTES:
        return None
    mark, synced, hint, replace_from, size, count = _GROUP.unpack_from(data)
    if mark != group_mark_of(nonce) or data[GROUP_HEADER_BYTES - 1 : GROUP_HEADER_BYTES] != LAST_BYTE:
        return None
    if _CRC.unpack_from(data, _GROUP.size)[0] != crc32c(data[: _GROUP.size], salt_of(nonce)):
        return None
    return GroupHeader(synced, hint, replace_from, size, count)


class EntryHeader(NamedTuple):
    """What is stored before an entry's body; ``size`` and ``body_crc`` are of the body."""

    size: int
    body_crc: int
    op_id: OpId
    timestamp: int
    kind: int


def stored_bytes_at(data: bytes, at: int) -> int:
    """Length of the body of the entry whose header at ``data[at]`` is known to be valid."""
    return int(_ENTRY.unpack_from(data, at)[2])


def decode_entry_header(data: bytes, salt: int) -> EntryHeader | None:
    """Return the entry header that ``data`` begins with; ``None`` if its checksum fails."""
    if len(data) < ENTRY_HEADER_BYTES:
        return None
    if _CRC.unpack_from(data, _ENTRY.size)[0] != crc32c(data[: _ENTRY.size], salt):
        return None
    _, kind, size, body_crc, term, index, timestamp = _ENTRY.unpack_from(data)
    return EntryHeader(size, body_crc, OpId(term, index), timestamp, kind)
