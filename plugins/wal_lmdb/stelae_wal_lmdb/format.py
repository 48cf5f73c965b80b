"""Encodes and decodes the keys and values of the environment.

All of them are in the unnamed database, so that a transaction copies the pages of one tree. A key is two big-endian
64-bit numbers:

====================  =====================================================================
key                   value
====================  =====================================================================
``0, 0``              header: magic, version, the number that the next log gets
``0, n``              record of log ``n``: its name, base, last op id and commit hint
``n, index``          entry ``index`` of log ``n``
====================  =====================================================================

Log numbers start at 1 and are never used again. Every checksum is a CRC32C that begins with the key. So a value that
LMDB returns under a wrong key fails its checksum, and so do bytes that a dropped log left in a page. The head of an
entry has its own checksum, so that its op id can be verified without its body."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from stelae.spi.errors import BadIdentifier, Corrupt, FutureVersion
from stelae.spi.ids import LogId, OpId, TabletId, tablet_id
from stelae.spi.log import Entry, EntryKind
from stelae.spi.services import Buffer

FORMAT_MAGIC = b"stelwlmd"
FORMAT_VERSION = 1
KEY_BYTES = 16
HEAD_BYTES = 28

_KEY = struct.Struct(">QQ")
_CRC = struct.Struct("<I")
_HEADER = struct.Struct("<8sHHIQ")
_RECORD = struct.Struct("<QQQQQQBB64s")
_HEAD = struct.Struct("<QQIB3x")
_KINDS = frozenset(EntryKind)

RECORD_BYTES = _RECORD.size + _CRC.size

NAMESPACE = 0
"""The first number of the header's key and of the records' keys."""


def key(first: int, second: int) -> bytes:
    """Return the key of an entry (log number and index) or of a record (``NAMESPACE`` and log number)."""
    return _KEY.pack(first, second)


def split_key(data: Buffer) -> tuple[int, int]:
    """Return both numbers of a key."""
    first, second = _KEY.unpack(data)
    return first, second


HEADER_KEY = key(NAMESPACE, 0)


def encode_header(next_number: int) -> bytes:
    """Return the value for ``HEADER_KEY``."""
    return _sealed(HEADER_KEY, _HEADER.pack(FORMAT_MAGIC, FORMAT_VERSION, 0, 0, next_number))


def decode_header(data: Buffer, path: str) -> int:
    """Return the number of the next log.

    Raises:
        FutureVersion: a newer release wrote the environment.
        Corrupt: the header is invalid.
    """
    raw = _opened(HEADER_KEY, data, _HEADER.size)
    if raw is None:
        raise Corrupt("the header of the environment fails its checksum", path=path, offset=0)
    magic, version, _, _, next_number = _HEADER.unpack(raw)
    if magic != FORMAT_MAGIC:
        raise Corrupt(f"the header of the environment begins with {magic!r}", path=path, offset=0)
    if version > FORMAT_VERSION:
        fact = f"format {version} is newer than {FORMAT_VERSION}, the newest known here"
        raise FutureVersion(fact, path=path)
    return int(next_number)


class RecordUse(IntEnum):
    """What may be done with a log. The numbers are stored and never reused."""

    LIVE = 0
    """The log may be used."""
    DROPPING = 1
    """The removal of the log has begun. The next start finishes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """The record of one log: the fields of ``LogState`` without damage, and what may be done with the log."""

    log: LogId
    base: OpId
    last: OpId
    commit_hint: int = 0
    use: RecordUse = RecordUse.LIVE


def encode_record(number: int, record: LogRecord) -> bytes:
    """Return the value of the record of log ``number``."""
    name = record.log.tablet_id.encode()
    fields = (*record.base, *record.last, record.commit_hint, record.log.generation, record.use, len(name))
    return _sealed(key(NAMESPACE, number), _RECORD.pack(*fields, name))


def decode_record(number: int, data: Buffer) -> LogRecord | None:
    """Return the record of log ``number``, or ``None`` if it is invalid."""
    raw = _opened(key(NAMESPACE, number), data, _RECORD.size)
    if raw is None:
        return None
    base_term, base_index, term, index, hint, generation, use, length, name = _RECORD.unpack(raw)
    try:
        tablet: TabletId = tablet_id(name[:length].decode("ascii", "replace"))
    except BadIdentifier:
        return None
    log = LogId(tablet, generation)
    base, last = OpId(base_term, base_index), OpId(term, index)
    return LogRecord(log=log, base=base, last=last, commit_hint=hint, use=RecordUse(use))


def decode_bounds(number: int, data: Buffer) -> tuple[OpId, OpId] | None:
    """Return base and last op id of a record, or ``None`` if it is invalid. Every read calls this."""
    raw = _opened(key(NAMESPACE, number), data, _RECORD.size)
    if raw is None:
        return None
    base_term, base_index, term, index = _RECORD.unpack(raw)[:4]
    return OpId(base_term, base_index), OpId(term, index)


def encode_entry(at: bytes, entry: Entry) -> bytes:
    """Return the value of an entry for its key."""
    salt = crc32c(at)
    head = _HEAD.pack(entry.op_id.term, entry.timestamp, crc32c(entry.body, salt), entry.kind)
    return b"".join((head, _CRC.pack(crc32c(head, salt)), entry.body))


class EntryHead(NamedTuple):
    """The head of a stored entry."""

    term: int
    timestamp: int
    body_crc: int
    kind: int


def decode_head(at: Buffer, data: Buffer) -> EntryHead | None:
    """Return the head of the entry with this key, or ``None`` if it fails its checksum."""
    if len(data) < HEAD_BYTES or _CRC.unpack_from(data, _HEAD.size)[0] != crc32c(data[: _HEAD.size], crc32c(at)):
        return None
    return EntryHead(*_HEAD.unpack_from(data))


def decode_entry(at: Buffer, data: Buffer) -> Entry | None:
    """Return the entry with this key, copied from ``data``, or ``None`` if a checksum fails."""
    head = decode_head(at, data)
    if head is None:
        return None
    body = bytes(data[HEAD_BYTES:])
    if crc32c(body, crc32c(at)) != head.body_crc or head.kind not in _KINDS:
        return None
    return Entry(OpId(head.term, split_key(at)[1]), EntryKind(head.kind), head.timestamp, body)


def _sealed(at: bytes, raw: bytes) -> bytes:
    return raw + _CRC.pack(crc32c(raw, crc32c(at)))


def _opened(at: bytes, data: Buffer, size: int) -> bytes | None:
    if len(data) != size + _CRC.size:
        return None
    raw = bytes(data[:size])
    return raw if _CRC.unpack_from(data, size)[0] == crc32c(raw, crc32c(at)) else None
