"""Metadata files: one small record per file, replaced as a whole, and checked at every read.

A file is a 20-byte header and a body::

    magic     4 bytes   the kind of file
    version   u16       of this kind's format
    reserved  u16       zero
    length    u64       of the body, in bytes
    crc       u32       CRC32C of the 16 bytes before it and of the body
    body                MessagePack

Magic and version are first, so that any later release can recognise the file.

Ordering and durability
    When ``save`` returns, the new contents are durable. After a crash during ``save`` the file has the old or the new
    contents, never a mixture. A file that fails its checks is never repaired or replaced by a default: the error names
    the file, and the caller decides what has failed."""

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
    """A metadata file does not exist."""


class CrashPoints:
    """Named points at which tests can simulate a crash. In production they do nothing; a test's subclass may raise."""

    def hit(self, point: str) -> None:
        """Called at the named point."""


NO_CRASH = CrashPoints()


@dataclass(frozen=True, slots=True)
class FileKind(Generic[Record]):
    """One kind of metadata file."""

    name: str  #: For messages.
    magic: bytes
    version: int  #: The newest format version that this release knows.
    records: msgspec.msgpack.Decoder[Record]  #: Made at import, on one thread (``stelae.protocol.codec`` says why).


def encode(kind: FileKind[Record], record: Record) -> bytes:
    """Encode a record as a file of this kind."""
    body = msgspec.msgpack.encode(record)
    bare = _HEADER.pack(kind.magic, kind.version, 0, len(body), 0)
    return _HEADER.pack(kind.magic, kind.version, 0, len(body), _crc(bare + body)) + body


def decode(kind: FileKind[Record], data: bytes, path: str) -> Record:
    """Decode the record in ``data``. ``path`` is for the errors.

    Raises:
        Corrupt: the length or the checksum is wrong, or the body is not such a record.
        Foreign: it is another kind of file.
        FutureVersion: it was written by a release with a newer format of this kind."""
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
        raise Corrupt(f"the {kind.name} file fails its checksum", path=path, offset=_CRC_AT)
    try:
        return kind.records.decode(data[HEADER_BYTES:])
    except (ValueError, RecursionError) as error:
        fact = f"{kind.name} body cannot be decoded: {error}"
        raise Corrupt(fact, path=path, offset=HEADER_BYTES) from error


def load(files: Files, kind: FileKind[Record], path: str) -> Record:
    """Read one file. Raises ``MetadataMissing`` if it does not exist, and otherwise as :func:`decode` does."""
    try:
        data = files.read_bytes(path)
    except (FileNotFoundError, NotADirectoryError) as error:  # The second one if a file has the name of its directory.
        raise MetadataMissing(f"there is no {kind.name} file", path=path) from error
    return decode(kind, data, path)


def save(files: Files, kind: FileKind[Record], path: str, record: Record, crash: CrashPoints = NO_CRASH) -> None:
    """Replace one file atomically. Durable on return. The names of the crash points begin with the kind's name.

    After ``Full`` the file has the old contents; after ``SyncFailed`` it has the old or the new ones."""
    crash.hit(f"{kind.name}.before_replace")
    files.replace(path, encode(kind, record))
    crash.hit(f"{kind.name}.after_replace")


def _crc(data: bytes) -> int:
    return crc32c.crc32c(data[HEADER_BYTES:], crc32c.crc32c(data[:_CRC_AT]))


class TabletFile(Generic[Record]):
    """The file of one kind of one tablet. It has one writer. Every method may block.

    An existing file is read before it is replaced, so that a newer or damaged file is never overwritten."""

    def __init__(self, files: Files, kind: FileKind[Record], path: str, tablet: TabletId, crash: CrashPoints) -> None:
        self._files = files
        self._kind = kind
        self._path = path
        self._tablet = tablet
        self._crash = crash

    def load(self) -> Record:
        """Read the file. Raises as :func:`load` does, and ``StorageError`` if it is the file of another tablet."""
        record = load(self._files, self._kind, self._path)
        found = getattr(record, "tablet_id", None)
        if found != self._tablet:
            fact = f"the {self._kind.name} file is of tablet {found}, not of the tablet in its name"
            raise StorageError(fact, path=self._path)
        return record

    def _known(self) -> Record | None:
        """Return the record in the file, or ``None`` if the file does not exist."""
        return self.load() if self._files.exists(self._path) else None

    def _replace(self, record: Record) -> None:
        save(self._files, self._kind, self._path, record, self._crash)
