"""The journal of an import: what it was of, and up to which row everything has been acknowledged.

It is a file of JSON lines. The first names the input, the table and whatever decides what rows mean; each further one
is a position. A line that was not written whole is as if it were not there.

Order
    1. ``reserved`` is durable before a row up to it is sent: after a crash, rows from ``acknowledged`` to ``reserved``
       may be in the table, and no others.
    2. ``acknowledged`` follows the answers, and is durable before it counts. It never passes a row that nobody answered
       for. Rows that were refused are durable in the file of bad rows first.

So an import that is repeated after a crash sends some rows again, and leaves none out."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from stelae.spi.errors import CallerError

JOURNAL_VERSION = 1

RESERVED_ROWS = 131_072
"""Rows by which the reservation runs ahead: a sync each few seconds, and few rows to send again after a crash."""


class JournalInUse(CallerError, code="JOURNAL_IN_USE"):
    """Another import uses the journal now."""


class BadJournal(CallerError, code="BAD_JOURNAL"):
    """A journal that is none, cannot be written, or is of another import."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What an import is of. Two imports with equal subjects write the same rows."""

    input_bytes: int
    input_digest: str  #: BLAKE2b of the file as it is on disk.
    table: str
    members: tuple[str, ...]  #: Its tablets, or their nodes: another table of that name has others.
    mode: str
    columns: tuple[str, ...]
    reading: tuple[str, ...]  #: Format, compression, delimiter, text for null.
    version: int = JOURNAL_VERSION

    def differences(self, other: Subject) -> list[str]:
        """Say in what another subject differs from this one; members may change, as long as some stay."""
        found = []
        for name, what in _NAMES.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                found.append(f"{what}: it has {_shown(mine)}, this is {_shown(theirs)}")
        if not {*self.members} & {*other.members}:
            found.append("the table: none of its tablets or nodes is known to the journal")
        return found


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far an import has come. Rows are numbers in the file."""

    acknowledged: int = 0  #: Everything up to this row is written, or told as bad.
    reserved: int = 0  #: No row beyond this one has been sent.
    written: int = 0
    bad: int = 0
    bad_bytes: int = 0  #: Length of the file of bad rows as of ``acknowledged``.
    timestamp: int = 0  #: Hybrid timestamp of the last write.


class Journal:
    """An open journal, held against other imports. Make one with :meth:`open`."""

    def __init__(self, path: Path, file: int, position: Position) -> None:
        self._path = path
        self._file = file
        self.position = position

    @classmethod
    def open(cls, path: Path, subject: Subject, *, restart: bool = False) -> Journal:
        """Open the journal of an import, or begin one.

        Raises:
            JournalInUse: another process holds it.
            BadJournal: it cannot be written, or is of something else; with what differs.
        """
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            fact = f"the journal {path} cannot be written: {error.strerror}"
            raise BadJournal(f"{fact}; choose another place with --journal") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            position = _read(path, file, subject, restart)
            journal = cls(path, file, position or Position())
            if position is None:
                journal._begin(subject)
            return journal
        except BlockingIOError as error:
            os.close(file)
            raise JournalInUse(f"another import uses {path}; wait for it, or choose another --journal") from error
        except BaseException:
            os.close(file)
            raise

    def _begin(self, subject: Subject) -> None:
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        self._append(msgspec.json.encode(subject))
        _sync_directory(self._path)

    def record(self, position: Position) -> None:
        """Make a position durable."""
        self._append(msgspec.json.encode(position))
        self.position = position

    def _append(self, body: bytes) -> None:
        os.lseek(self._file, 0, os.SEEK_END)
        data = body + b"\n"
        while data:
            data = data[os.write(self._file, data) :]
        os.fsync(self._file)

    def close(self, *, done: bool) -> None:
        """Let go of it; an import that is done leaves none behind."""
        if done:
            self._path.unlink(missing_ok=True)
            _sync_directory(self._path)
        os.close(self._file)


def digest_of(path: Path) -> tuple[int, str]:
    """Return length and digest of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32))
        return file.tell(), digest.hexdigest()


def _read(path: Path, file: int, subject: Subject, restart: bool) -> Position | None:
    """Return where an import stopped; ``None``: nothing of it was sent, or it is to begin again."""
    size = os.fstat(file).st_size
    data = b""
    while len(data) < size and (more := os.pread(file, size - len(data), len(data))):
        data += more
    whole = data[: data.rfind(b"\n") + 1]
    lines = whole.splitlines()
    if not lines and _FIRST_BYTES.startswith(data[: len(_FIRST_BYTES)]):
        return None  # Nothing was sent before the first line was durable.
    try:
        known = msgspec.json.decode(lines[0] if lines else data, type=Subject)
        positions = _positions(lines[1:])
    except (msgspec.MsgspecError, ValueError) as error:
        fact = f"{path} is no journal of an import: {error}"
        raise BadJournal(f"{fact}; choose another place with --journal") from error
    if restart:
        return None
    different = known.differences(subject)
    if different:
        listed = "\n  ".join(different)
        fact = f"{path} is the journal of another import:\n  {listed}"
        raise BadJournal(f"{fact}\nfinish that one, begin again with --restart, or choose another --journal")
    if len(whole) < size:
        os.ftruncate(file, len(whole))
    return positions[-1] if positions else Position()


def _positions(lines: Sequence[bytes]) -> list[Position]:
    """The positions; of the last line it is not known whether it became durable."""
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(msgspec.json.decode(line, type=Position))
        except (msgspec.MsgspecError, ValueError):
            if number < len(lines):
                raise
    return found


def _sync_directory(path: Path) -> None:
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _shown(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


_FIRST_BYTES = b'{"input_bytes":'
_NAMES = {
    "version": "the journal's version",
    "input_bytes": "the length of the input",
    "input_digest": "the input's contents",
    "table": "the table",
    "mode": "--mode",
    "columns": "the columns",
    "reading": "how the file is read",
}
