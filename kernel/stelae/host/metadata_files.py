"""Metadata files: one small record per file, replaced whole, checked on every read.

A file is a 20-byte header and a body::

    magic     4 bytes   what kind of file it is
    version   u16       of this kind's format
    reserved  u16       zero
    length    u64       of the body, in bytes
    crc       u32       CRC32C of the 16 bytes before it and of the body
    body                MessagePack

Magic and version stand first, so that any later release can tell what it is looking at.

Ordering and durability
    ``save`` returns when the new contents are durable; after a crash inside it one reads the old
    contents or the new, never a mixture. A file that fails its checks is never repaired, guessed
    at or replaced by a default: the error names it, and whoever asked decides what has failed."""

import struct
from dataclasses import dataclass
from typing import Generic, TypeVar

import crc32c
import msgspec

from stelae.spi.errors import Corrupt, Foreign, FutureVersion, StorageError
from stelae.spi.ids import TabletId
from stelae.spi.services import Files

_HEADER = struct.Struct("<4sHHQI")
_CRC_AT = 16
HEADER_BYTES = _HEADER.size

Record = TypeVar("Record", bound=msgspec.Struct)


class MetadataMissing(StorageError, code="METADATA_MISSING"):
    """A metadata file that was asked for is not there."""


class CrashPoints:
    """Where tests stop a process: production passes through, a test's subclass may raise."""

    def hit(self, point: str) -> None:
        """Pass the named point."""


NO_CRASH = CrashPoints()


@dataclass(frozen=True, slots=True)
class FileKind(Generic[Record]):
    """One kind of metadata file: its name for people, magic, format version and what reads its records."""

    name: str
    magic: bytes
    version: int
    records: msgspec.msgpack.Decoder[Record]  # Made at import, on one thread: see ``stelae.protocol.tablet_messages``.


def encode(kind: FileKind[Record], record: Record) -> bytes:
    """Return the bytes of a file of this kind."""
    body = msgspec.msgpack.encode(record)
    bare = _HEADER.pack(kind.magic, kind.version, 0, len(body), 0)
    return _HEADER.pack(kind.magic, kind.version, 0, len(body), _crc(bare + body)) + body


def decode(kind: FileKind[Record], data: bytes, path: str) -> Record:
    """Return the record in ``data``.

    Raises:
        Corrupt: too short, too long, a checksum fails, or the body is not such a record.
        Foreign: another kind of file.
        FutureVersion: written by a release with a newer format of this kind."""
    if len(data) < HEADER_BYTES:
        fact = f"{kind.name} file of {len(data)} bytes is shorter than its header"
        raise Corrupt(fact, path=path, offset=len(data))
    magic, version, _, length, crc = _HEADER.unpack_from(data)
    if magic != kind.magic:
        raise Foreign(f"not a {kind.name} file: it begins with {magic!r}", path=path, offset=0)
    if version > kind.version:
        fact = f"{kind.name} format {version} is newer than {kind.version}, the newest known here"
        raise FutureVersion(fact, path=path, offset=4)
    if length != len(data) - HEADER_BYTES:
        fact = f"{kind.name} body has {len(data) - HEADER_BYTES} bytes, the header says {length}"
        raise Corrupt(fact, path=path, offset=8)
    if crc != _crc(data):
        raise Corrupt(f"{kind.name} fails its checksum", path=path, offset=_CRC_AT)
    try:
        return kind.records.decode(data[HEADER_BYTES:])
    except (ValueError, RecursionError) as error:
        fact = f"{kind.name} body is not readable: {error}"
        raise Corrupt(fact, path=path, offset=HEADER_BYTES) from error


def load(files: Files, kind: FileKind[Record], path: str) -> Record:
    """Read one file. ``MetadataMissing``: there is no such file. ``Corrupt``, ``Foreign``, ``FutureVersion``: see
    :func:`decode`."""
    try:
        data = files.read_bytes(path)
    except FileNotFoundError as error:
        raise MetadataMissing(f"there is no {kind.name} file", path=path) from error
    return decode(kind, data, path)


def save(files: Files, kind: FileKind[Record], path: str, record: Record, crash: CrashPoints = NO_CRASH) -> None:
    """Replace one file atomically; durable on return. The crash points bear the kind's name. ``Full``: the old contents
    stand. ``SyncFailed``: the old or the new ones do."""
    crash.hit(f"{kind.name}.before_replace")
    files.replace(path, encode(kind, record))
    crash.hit(f"{kind.name}.after_replace")


def _crc(data: bytes) -> int:
    return crc32c.crc32c(data[HEADER_BYTES:], crc32c.crc32c(data[:_CRC_AT]))


class TabletFile(Generic[Record]):
    """One tablet's file of one kind. One writer; every call may block.

    A file that is there is read before it is replaced: nobody overwrites what they did not know,
    be it newer or damaged."""

    def __init__(self, files: Files, kind: FileKind[Record], path: str, tablet: TabletId, crash: CrashPoints) -> None:
        self._files = files
        self._kind = kind
        self._path = path
        self._tablet = tablet
        self._crash = crash

    def load(self) -> Record:
        """Read the file; raises as :func:`load`, and ``StorageError`` if it is another tablet's."""
        record = load(self._files, self._kind, self._path)
        found = getattr(record, "tablet_id", None)
        if found != self._tablet:
            fact = f"{self._kind.name} of tablet {found} under another name"
            raise StorageError(fact, path=self._path)
        return record

    def _known(self) -> Record | None:
        """Return what the file holds, ``None`` if there is none."""
        return self.load() if self._files.exists(self._path) else None

    def _replace(self, record: Record) -> None:
        save(self._files, self._kind, self._path, record, self._crash)
