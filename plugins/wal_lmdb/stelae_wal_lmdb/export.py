"""An exported log: a file outside of the environment with a log's entries as they were stored.

A snapshot is such a file without a name. It is not a read transaction, because a long one would keep every page that is
freed meanwhile. A log that is set aside becomes such a file with a name.

The file begins with a magic, a version, the log's number and its record. Then it has for each entry the index and the
length (``<QI``) and the stored value, whose checksums begin with number and index."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

from stelae.spi.errors import Corrupt, StorageError
from stelae.spi.log import Entry
from stelae.spi.services import Buffer, File
from stelae.spi.wal import SnapshotUnit, WalSnapshot
from stelae_wal_lmdb.format import RECORD_BYTES, LogRecord, decode_entry, decode_record, encode_record, key

EXPORT_MAGIC = b"stelwlmx"
EXPORT_VERSION = 1

_HEADER = struct.Struct("<8sHHIQ")
_FRAME = struct.Struct("<QI")
_BATCH_BYTES = 1 << 20


def write_export(file: File, number: int, record: LogRecord, values: Iterable[tuple[int, memoryview]]) -> int:
    """Write a log to an empty file, without a sync; return the offset where the entries end.

    Raises:
        Full: there is no space.
        StorageError: the write failed, and the file is unusable.
    """
    batch: list[Buffer] = [_HEADER.pack(EXPORT_MAGIC, EXPORT_VERSION, 0, 0, number), encode_record(number, record)]
    end = pending = sum(map(len, batch))
    for index, value in values:
        batch += (_FRAME.pack(index, len(value)), value)
        pending += _FRAME.size + len(value)
        end += _FRAME.size + len(value)
        if pending > _BATCH_BYTES:
            file.pwritev(batch, end - pending)
            batch, pending = [], 0
    file.pwritev(batch, end - pending)
    return end


def read_record(file: File, path: str) -> LogRecord:
    """Return the record of the log in an exported file. ``Corrupt``: the file is invalid."""
    head = file.pread(_HEADER.size + RECORD_BYTES, 0)
    whole = len(head) == _HEADER.size + RECORD_BYTES and head[: len(EXPORT_MAGIC)] == EXPORT_MAGIC
    number = int(_HEADER.unpack_from(head)[4]) if whole else 0
    record = decode_record(number, head[_HEADER.size :]) if whole else None
    if record is None:
        raise Corrupt(f"the file begins with {head[:8]!r}: not an exported log", path=path, offset=0)
    return record


def read_export(file: File, path: str) -> Iterator[Entry]:
    """Yield the entries of an exported file, checksums verified.

    Raises:
        Corrupt: the file is invalid.
    """
    head = file.pread(_HEADER.size, 0)
    if len(head) < _HEADER.size or head[: len(EXPORT_MAGIC)] != EXPORT_MAGIC:
        raise Corrupt(f"the file begins with {head[:8]!r}: not an exported log", path=path, offset=0)
    number = int(_HEADER.unpack(head)[4])
    offset = _HEADER.size + RECORD_BYTES
    while frame := file.pread(_FRAME.size, offset):
        index, size = _FRAME.unpack(frame) if len(frame) == _FRAME.size else (0, 0)
        entry = decode_entry(key(number, index), file.pread(size, offset + _FRAME.size))
        if entry is None:
            raise Corrupt("an exported entry fails its checksum", path=path, offset=offset)
        yield entry
        offset += _FRAME.size + size


class ExportSnapshot(WalSnapshot):
    """A view in a file of its own, whose name was already removed."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._released = False

    @property
    def units(self) -> Sequence[SnapshotUnit]:
        """Empty: a copy of this log gets entries, not files."""
        return ()

    def entries(self) -> Iterator[Entry]:
        """Every entry of the view in index order, checksums verified."""
        if self._released:
            raise StorageError("the snapshot was released", path=self._file.path)
        yield from read_export(self._file, self._file.path)

    def release(self) -> None:
        """Close the file, which frees its space. Releasing twice is harmless."""
        self._released = True
        self._file.close()
