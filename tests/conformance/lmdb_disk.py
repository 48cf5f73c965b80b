"""A real disk for the LMDB engine: processes that die, files that are cut, and a limit on space."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest

from stelae.machine.files import RealFile, RealFiles
from stelae.spi.errors import Full
from stelae.spi.ids import LogId
from stelae.testing.native_harness import NativeHarness
from stelae_wal_lmdb import LmdbConfig, LmdbWal, engine, startup
from stelae_wal_lmdb.check import EnvironmentReport, check

SMALL = LmdbConfig(
    map_bytes=1 << 30, file_growth_bytes=1 << 16, reserve_bytes=1 << 16, removed_entries_max=50, check="unclean"
)
"""Small steps, so that every scenario extends the file and removes in several transactions."""


class LimitedFile(RealFile):
    """A file that cannot be extended beyond ``file_bytes_max``."""

    file_bytes_max: int | None = None

    def preallocate(self, size: int) -> None:
        """As the real one, within the limit."""
        if self.file_bytes_max is not None and size > self.file_bytes_max:
            raise Full("no space: the limit of the test", path=self.path)
        super().preallocate(size)


class LimitedFiles(RealFiles):
    """The machine's disk with a limit on what the data file may grow to, and names that may fail."""

    def __init__(self) -> None:
        self.limit_bytes: int | None = None
        self.refuse_names = False
        self._data: list[LimitedFile] = []

    def open(self, path: str, *, writable: bool = False) -> RealFile:
        """Open a file; the data file with the limit."""
        file = super().open(path, writable=writable)
        if not writable or not path.endswith("data.mdb"):
            return file
        limited = LimitedFile(file._fd, path)
        file._fd = -1
        limited.file_bytes_max = self.limit_bytes
        self._data.append(limited)
        return limited

    def create(self, path: str) -> RealFile:
        """Create a file; refused for names if the test says so."""
        if self.refuse_names and "/names/" in path:
            raise Full("no space: the limit of the test", path=path)
        return super().create(path)

    def limit(self, file_bytes_max: int | None) -> None:
        """Limit the data file, opened already or later, to this many bytes."""
        self.limit_bytes = file_bytes_max
        for file in self._data:
            file.file_bytes_max = file_bytes_max


class LmdbHarness(NativeHarness):
    """A ``NativeHarness`` whose disk can be limited. A restart makes the table of readers anew."""

    def __init__(self, root: str, config: LmdbConfig = SMALL, setup: tuple[str, ...] = ()) -> None:
        here = f"{__name__}:{check_here.__name__}"
        super().__init__(LmdbWal, root, config, setup=setup, shortcut=(here,), mapped=frozenset({"lock.mdb"}))
        self._files = self.disk = LimitedFiles()

    @property
    def data(self) -> Path:
        """The environment's file."""
        return Path(self.directory) / "env" / "data.mdb"

    def flip(self, offset: int, mask: int) -> None:
        """Flip bits of the environment's file behind the engine's back."""
        with self.data.open("r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ mask]))

    def offset_of(self, text: bytes) -> int:
        """Where a text stands first in the environment's file."""
        offset = self.data.read_bytes().find(text)
        assert offset > 0
        return offset


@contextmanager
def checks_here() -> Iterator[list[str]]:
    """Run the check in this process: far faster, where what it meets cannot kill. Yields its calls."""
    calls: list[str] = []

    def here(directory: str, seconds_max: int) -> EnvironmentReport:
        calls.append(directory)
        return check(directory)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(startup, "check_in_child", here)
        yield calls


class FailingCommit:
    """Stands in for an LMDB environment whose commits fail while ``error`` is set."""

    def __init__(self, env: Any, error: Exception | None) -> None:
        self._env = env
        self.error = error

    def begin(self, **options: Any) -> Any:
        """A transaction; one that writes fails when it commits."""
        txn = self._env.begin(**options)
        return _FailingTransaction(txn, self) if options.get("write") else txn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


class _FailingTransaction:
    def __init__(self, txn: Any, owner: FailingCommit) -> None:
        self._txn = txn
        self._owner = owner

    def commit(self) -> None:
        """Fail, or commit."""
        if self._owner.error is not None:
            self._txn.abort()
            raise self._owner.error
        self._txn.commit()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._txn, name)


def changed_pages(before: bytes, after: bytes, page_bytes: int) -> Sequence[int]:
    """Numbers of the pages that differ, the two that begin the file apart."""
    return [
        number
        for number in range(2, len(after) // page_bytes)
        if before[number * page_bytes : (number + 1) * page_bytes]
        != after[number * page_bytes : (number + 1) * page_bytes]
    ]


def check_here() -> None:
    """Run the check in this process from now on: for a child that does nothing else, and may die of it."""
    startup.check_in_child = lambda directory, seconds_max: check(directory)


def _opens_with(**options: bool) -> None:
    opened = lmdb.open
    lmdb.open = lambda *arguments, **given: opened(*arguments, **(given | options))


def without_sync() -> None:
    """Plant a bug: no commit is synced."""
    _opens_with(sync=False)


def without_meta_sync() -> None:
    """Plant a bug: the page that makes a commit true is written and not synced."""
    _opens_with(metasync=False)


def without_names() -> None:
    """Plant a bug: no directory is synced."""
    RealFiles.sync_directory = lambda self, path: None  # type: ignore[method-assign]


def with_numbers_used_again() -> None:
    """Plant a bug: a log gets the number of the one that was dropped before it, whose entries are still there."""
    drop = LmdbWal.drop

    def drops(self: LmdbWal, log: LogId) -> None:
        number = self._logs[log].number
        drop(self, log)
        self._next_number = number

    LmdbWal.drop = drops  # type: ignore[method-assign]
    engine.purge = lambda env, log, entries_max: None
