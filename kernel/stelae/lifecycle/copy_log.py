"""The encoding of a piece of a log in a copy. It is the same for every log engine. Pure.

Format, little-endian:

1. the magic ``STcl`` and a byte with the format version;
2. for each entry: term (u64), index (u64), kind (u8), timestamp (u64), length of the body (u32), the body.

The encoding is deterministic: the same entries give the same bytes, so pieces of different sources have the same
digest. The checksum is the digest of the item."""

import struct
from collections.abc import Iterable, Iterator

from stelae.lifecycle.copy_items import LogCutter, log_item, log_range
from stelae.spi.errors import Corrupt
from stelae.spi.ids import OpId
from stelae.spi.log import ENTRY_BYTES_MAX, Entry, EntryKind

_MAGIC = b"STcl\x01"
_ENTRY = struct.Struct("<QQBQI")
_KINDS = {kind.value: kind for kind in EntryKind}


def log_pieces(entries: Iterable[Entry]) -> Iterator[tuple[str, bytes]]:
    """Cut the entries of a log into pieces. Yield the name and the bytes of each. Holds one piece in memory."""
    cutter, first, parts = LogCutter(), 0, [_MAGIC]
    index = 0
    for entry in entries:
        index, part = entry.op_id.index, _encoded(entry)
        first = first or index
        parts.append(part)
        if cutter.ends_piece(index, len(part)):
            yield log_item(first, index), b"".join(parts)
            first, parts = 0, [_MAGIC]
    if first:
        yield log_item(first, index), b"".join(parts)


def decode_entries(item: str, data: bytes, after: OpId) -> list[Entry]:
    """Return the entries of a piece.

    Args:
        item: the name of the piece, which says its indexes.
        data: its bytes.
        after: the op id of the entry before the piece.

    Raises ``Corrupt`` if the bytes are not the entries of this piece, or do not follow ``after``."""
    first, last = log_range(item)
    if first != after.index + 1:
        raise Corrupt(f"{item} does not follow {after}")
    entries, previous = [], after
    for entry in _decoded(item, data):
        op_id = entry.op_id
        if op_id.index != previous.index + 1 or op_id.term < previous.term:
            raise Corrupt(f"{item}: entry {op_id} cannot follow {previous}")
        entries.append(entry)
        previous = op_id
    if previous.index != last:
        raise Corrupt(f"{item} ends at entry {previous}")
    return entries


def _encoded(entry: Entry) -> bytes:
    term, index = entry.op_id
    return _ENTRY.pack(term, index, entry.kind, entry.timestamp, len(entry.body)) + entry.body


def _decoded(item: str, data: bytes) -> Iterator[Entry]:
    if data[: len(_MAGIC)] != _MAGIC:
        raise Corrupt(f"{item} does not begin as a piece of a log in a known format")
    at = len(_MAGIC)
    while at < len(data):
        if at + _ENTRY.size > len(data):
            raise Corrupt(f"{item} ends within an entry")
        term, index, kind, timestamp, length = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        if kind not in _KINDS or length > ENTRY_BYTES_MAX or at + length > len(data):
            raise Corrupt(f"{item}: the entry at byte {at - _ENTRY.size} cannot be read")
        yield Entry(OpId(term, index), _KINDS[kind], timestamp, data[at : at + length])
        at += length
