"""An exported log: a file outside of the environment with a log's entries as they were stored.

A snapshot is such a file without a name. It is not a read transaction, because a long one would keep every page that is
freed meanwhile. A log that is set aside becomes such a file with a name.

The file begins with a magic, a version, the log's number and its record. Then it has for each entry the index and the
length (``<QI``) and the stored value, whose checksums begin with number and index."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

from stelae.spi.errors import CallerError, Compacted, Corrupt, StorageError
from stelae.spi.log import Entry
from stelae.spi.services import Buffer, File
from stelae.spi.wal import LogState, SnapshotUnit, WalSnapshot
from stelae_wal_lmdb.environment import LogEnvironment
from stelae_wal_lmdb.format import RECORD_BYTES, LogRecord, decode_entry, decode_record, encode_record, key
from stelae_wal_lmdb.log import EnvironmentLog
from stelae_wal_lmdb.reader import stored

EXPORT_MAGIC = b"stelwlmx"
EXPORT_VERSION = 1

_HEADER = struct.Struct("<8sHHIQ")
_FRAME = struct.Struct("<QI")
_BATCH_BYTES = 1 << 20


def export_view(env: LogEnvironment, log: EnvironmentLog, file: File, first: int) -> None:
    """Write a log from ``first`` on to an empty file, as one transaction sees it.

    Raises:
        Compacted, CallerError: the log has no entry at ``first``, and does not end just before it.
        StorageError: the file is unusable.
    """
    with env.read() as txn:
        base, last = log.bounds(txn)
        if first <= base.index:
            raise Compacted(base)
        if first > last.index + 1:
            raise CallerError(f"log {log.name} ends at {last}: no view begins at {first}")
        record = LogRecord(log=log.name, base=base, last=last, commit_hint=log.record.commit_hint)
        write_export(file, log.number, record, stored(env, log, txn, base, first, last.index + 1))


def export_whole(env: LogEnvironment | None, log: EnvironmentLog, file: File) -> None:
    """Write a log to an empty file, up to its damage. Only the thread that changes the log may call this.

    The bounds are those in memory, because the record may be lost. Without an environment no entry is left.

    Raises:
        StorageError: the export is incomplete.
    """
    while True:
        state = log.state()
        file.truncate(0)
        try:
            _write_state(env, log, file, state)
            return
        except Corrupt:
            if log.state().last == state.last:
                raise
            # An entry is missing, so the log ends before it now. Export what is left of it.


def _write_state(env: LogEnvironment | None, log: EnvironmentLog, file: File, state: LogState) -> None:
    base, last = state.base, state.last
    record = LogRecord(log=log.name, base=base, last=last, commit_hint=state.commit_hint)
    if env is None:
        write_export(file, log.number, record, ())
        return
    with env.read() as txn:
        write_export(file, log.number, record, stored(env, log, txn, base, base.index + 1, last.index + 1))


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
