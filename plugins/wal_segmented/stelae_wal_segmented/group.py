"""Encodes the entries of one commit as a group, and decodes single entries."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from stelae.spi.errors import Corrupt, TooLarge
from stelae.spi.log import ENTRY_BYTES_MAX, Entry, EntryKind
from stelae.spi.services import Buffer
from stelae_wal_segmented.format import (
    END_MARK_BYTES,
    ENTRY_HEADER_BYTES,
    ENTRY_LEAD,
    GROUP_HEADER_BYTES,
    GroupHeader,
    decode_entry_header,
    encode_group_header,
    end_mark_of,
    pack_entry,
    salt_of,
)
from stelae_wal_segmented.index import FIRST_OF_GROUP

_CRC = struct.Struct("<I")
_KINDS = {kind.value: kind for kind in EntryKind}


class EncodedGroup(NamedTuple):
    """A group that is ready to be written."""

    buffers: list[Buffer]  #: The bytes of the group.
    offsets: list[int]  #: One offset for each entry, as in ``SegmentIndex.offsets``.
    size: int  #: Length of all buffers together.


def encode_group(
    entries: Sequence[Entry], *, nonce: int, at: int, synced: int, replace_from: int | None, commit_hint: int
) -> EncodedGroup:
    """Encode a group that will be written at offset ``at``. Bodies are not copied.

    Raises:
        TooLarge: an entry is larger than ``ENTRY_BYTES_MAX``.
    """
    salt = salt_of(nonce)
    buffers: list[Buffer] = [b""]
    offsets = []
    offset = at + GROUP_HEADER_BYTES
    pack_crc = _CRC.pack  # A local name makes the loop faster.
    for entry in entries:
        body = entry.body
        size = len(body)
        if size > ENTRY_BYTES_MAX:
            raise TooLarge(f"entry {entry.op_id}", size, ENTRY_BYTES_MAX)
        term, index = entry.op_id
        raw = pack_entry(ENTRY_LEAD, entry.kind, size, crc32c(body, salt), term, index, entry.timestamp)
        offsets.append(offset)
        buffers.append(raw + pack_crc(crc32c(raw, salt)))
        if size:
            buffers.append(body)
        offset += ENTRY_HEADER_BYTES + size
    if offsets:
        offsets[0] |= FIRST_OF_GROUP
    size = offset + END_MARK_BYTES - at
    buffers[0] = encode_group_header(GroupHeader(synced, commit_hint, replace_from or 0, size, len(entries)), nonce)
    buffers.append(end_mark_of(nonce))
    return EncodedGroup(buffers, offsets, size)


def decode_entry(data: bytes, start: int, nonce: int, path: str, file_offset: int) -> Entry:
    """Return the entry that begins at ``data[start]``, which is offset ``file_offset`` of the file.

    Raises:
        Corrupt: the header or the body fails its checksum, or the kind is unknown.
    """
    salt = salt_of(nonce)
    body_at = start + ENTRY_HEADER_BYTES
    header = decode_entry_header(data[start:body_at], salt)
    if header is None:
        raise Corrupt("an entry header fails its checksum", path=path, offset=file_offset)
    body = data[body_at : body_at + header.size]
    if len(body) < header.size or crc32c(body, salt) != header.body_crc:
        fact = f"the body of entry {header.op_id} fails its checksum"
        raise Corrupt(fact, path=path, offset=file_offset)
    return Entry(header.op_id, kind_of(header.kind, path, file_offset), header.timestamp, body)


def kind_of(number: int, path: str, offset: int) -> EntryKind:
    """Return the kind of an entry.

    Raises:
        Corrupt: this release does not know the number, although the entry's checksum is right.
    """
    kind = _KINDS.get(number)
    if kind is None:
        raise Corrupt(f"entry kind {number} is unknown", path=path, offset=offset)
    return kind
