"""The journal of an import: its input and table, and the row up to which everything has been acknowledged.

The journal is a file of JSON lines. The first line names the input, the table and the options that decide what the rows
mean. Each further line is a position. An incomplete last line is ignored, and removed before the next one is appended.

Ordering and durability
    1. ``reserved`` is durable before a row up to it is sent. After a crash, the rows after ``acknowledged`` up to
       ``reserved`` may be in the table. Later rows are not.
    2. ``acknowledged`` is written after the answers arrive. It never passes a row without an answer. Rejected rows are
       durable in the file of bad rows before it.

So an import that is repeated after a crash sends some rows again and skips none."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from stelae.spi.errors import CallerError, StorageError
from stelae_transfer.files import sync_directory_of

JOURNAL_VERSION = 1

RESERVED_ROWS = 131_072
"""Rows by which a reservation is ahead: few enough to send again, and enough for one sync in a few seconds."""


class JournalInUse(CallerError, code="JOURNAL_IN_USE"):
    """Another process is using the journal."""


class BadJournal(CallerError, code="BAD_JOURNAL"):
    """The file is not a journal, cannot be opened, or belongs to another import."""


class JournalFailed(StorageError, code="JOURNAL_FAILED"):
    """The journal cannot be read or written: the disk is full or fails. The journal has its last durable position."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What an import loads, and into which table. Two imports with equal subjects write the same rows."""

    input_bytes: int
    input_digest: str  #: BLAKE2b of the file as it is on disk.
    table: str
    members: tuple[str, ...]  #: The tablets of the table, or their nodes. Another table of the same name has others.
    mode: str
    columns: tuple[str, ...]
    reading: tuple[str, ...]  #: Format, compression, delimiter, text that means null.
    late_members: str  #: What happens to members that only later rows of JSON lines have; empty: another format.
    version: int = JOURNAL_VERSION

    def differences(self, other: Subject) -> list[str]:
        """Return how another subject differs from this one. Members may change as long as one of them remains."""
        found = []
        for name, what in _NAMES.items():
            recorded, requested = getattr(self, name), getattr(other, name)
            if recorded != requested:
                found.append(f"{what}: the journal has {_shown(recorded)}, this import has {_shown(requested)}")
        if not {*self.members} & {*other.members}:
            found.append("the table: the journal has none of its tablets or nodes")
        return found


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of an import. Row numbers count from 1 in the file."""

    acknowledged: int = 0  #: Every row up to this one is written, or is in the file of bad rows.
    reserved: int = 0  #: No row after this one has been sent.
    written: int = 0  #: Number of rows written so far.
    bad: int = 0  #: Number of bad rows so far.
    bad_bytes: int = 0  #: Length of the file of bad rows as of ``acknowledged``.
    timestamp: int = 0  #: Hybrid timestamp of the last write.


class Journal:
    """An open journal, locked against other imports. :meth:`open` creates one.

    Threads may share it. Records that an interrupted task has left in another thread end before the journal is closed.
    """

    def __init__(self, path: Path, file: int, position: Position) -> None:
        self._path = path
        self._file = file
        self._end_bytes = os.fstat(file).st_size  #: Length of the lines that are durable.
        self._lock = threading.Lock()
        self.position = position

    @classmethod
    def open(cls, path: Path, subject: Subject, *, restart: bool = False) -> Journal:
        """Open the journal of an import, or create it.

        Args:
            path: the journal file.
            subject: the import.
            restart: discard the recorded position and start from the first row.

        Raises:
            JournalInUse: another process has it open.
            BadJournal: it cannot be opened, or belongs to another import; with the differences.
            JournalFailed: it cannot be read or written.
        """
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            fact = f"cannot write the journal {path}: {error.strerror}"
            raise BadJournal(f"{fact}; choose another file with --journal") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            position = _read(path, file, subject, restart)
            if position is not None:  # An import that was killed may have synced neither its last line nor the name.
                os.fsync(file)
                sync_directory_of(path)
            journal = cls(path, file, position or Position())
            if position is None:
                journal._begin(subject)
            return journal
        except BlockingIOError as error:
            os.close(file)
            raise JournalInUse(f"another import is using {path}; wait for it, or choose another --journal") from error
        except OSError as error:
            os.close(file)
            raise _failed(path, error) from error
        except BaseException:
            os.close(file)
            raise

    def _begin(self, subject: Subject) -> None:
        self._end_bytes = 0
        self._append(msgspec.json.encode(subject))
        sync_directory_of(self._path)

    def record(self, position: Position) -> None:
        """Append a position. It is durable on return.

        Raises:
            JournalFailed: the position is not recorded. The journal is as before, and another position may be recorded.
        """
        with self._lock:
            self._append(msgspec.json.encode(position))
            self.position = position

    def _append(self, body: bytes) -> None:
        """Append a line behind the durable ones. If it fails, nothing of the line is left before the next one."""
        if self._file < 0:
            raise JournalFailed(f"the journal {self._path} is closed")
        data = body + b"\n"
        try:
            os.ftruncate(self._file, self._end_bytes)
            done = 0
            while done < len(data):
                done += os.pwrite(self._file, data[done:], self._end_bytes + done)
            os.fsync(self._file)
        except OSError as error:
            with suppress(OSError):  # Otherwise the next append or the next open does it.
                os.ftruncate(self._file, self._end_bytes)
            raise _failed(self._path, error) from error
        self._end_bytes += len(data)

    def close(self, *, done: bool) -> None:
        """Close the journal and release its lock. ``done``: the import is complete, so delete the journal."""
        with self._lock:
            try:
                if done:
                    self._path.unlink(missing_ok=True)
                    sync_directory_of(self._path)
            except OSError as error:
                fact = f"the import is complete, but its journal {self._path} cannot be deleted: {error.strerror}"
                raise JournalFailed(f"{fact}; delete it") from error
            finally:
                os.close(self._file)
                self._file = -1


def digest_of(path: Path) -> tuple[int, str]:
    """Return the length and the digest of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32))
        return file.tell(), digest.hexdigest()


def identity_of(path: Path) -> tuple[int, ...]:
    """Return what changes when a file is written or replaced: its inode, length and time of change in nanoseconds.

    Returns an empty tuple if there is no such file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read(path: Path, file: int, subject: Subject, restart: bool) -> Position | None:
    """Return the position at which an import stopped, and remove a torn last line.

    ``None``: no row was sent, or ``restart`` is set."""
    size = os.fstat(file).st_size
    data = b""
    while len(data) < size and (more := os.pread(file, size - len(data), len(data))):
        data += more
    lines = data.split(b"\n")[:-1]
    if not lines and _FIRST_BYTES.startswith(data[: len(_FIRST_BYTES)]):
        return None  # No row is sent before the first line is durable.
    try:
        known = msgspec.json.decode(lines[0] if lines else data, type=Subject)
        positions = _positions(lines[1:])
    except (msgspec.MsgspecError, ValueError) as error:
        fact = f"{path} is not the journal of an import: {error}"
        raise BadJournal(f"{fact}; choose another file with --journal") from error
    if restart:
        return None
    different = known.differences(subject)
    if different:
        listed = "\n  ".join(different)
        fact = f"{path} is the journal of another import:\n  {listed}"
        raise BadJournal(f"{fact}\nfinish that import, start over with --restart, or choose another --journal")
    whole_bytes = sum(len(line) + 1 for line in lines[: 1 + len(positions)])
    if whole_bytes < size:
        os.ftruncate(file, whole_bytes)
    return positions[-1] if positions else Position()


def _positions(lines: Sequence[bytes]) -> list[Position]:
    """Return the recorded positions. A last line that cannot be parsed is left out: its write was not completed."""
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(msgspec.json.decode(line, type=Position))
        except (msgspec.MsgspecError, ValueError):
            if number < len(lines):
                raise
    return found


def _failed(path: Path, error: OSError) -> JournalFailed:
    fact = f"cannot write the journal {path}: {error.strerror or error}"
    step = "make space or repair the disk, and run the same command again to resume after the last acknowledged row"
    return JournalFailed(f"{fact}; {step}")


def _shown(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


_FIRST_BYTES = b'{"input_bytes":'
_NAMES = {
    "version": "the version of the journal",
    "input_bytes": "the length of the input",
    "input_digest": "the contents of the input",
    "table": "the table",
    "mode": "--mode",
    "columns": "the columns",
    "reading": "how the file is read",
    "late_members": "members that only later rows have (--skip-unknown, --columns)",
}
