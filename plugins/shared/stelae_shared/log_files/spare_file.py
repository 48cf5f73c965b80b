"""The file of the next segment, which a worker prepares while appends continue in the open segment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from stelae.spi.errors import StorageError
from stelae.spi.services import File, Files, Workers

Wanted: TypeAlias = Callable[[], bool]

_ZEROS = bytes(1 << 20)


class SpareFile:
    """A prepared file for a future segment, without contents.

    The log requests it, and takes it or gives it up. A worker makes it. If it is given up, the worker or ``give_up``
    removes the file, whichever is later.

    Args:
        files: the disk.
        path: path of the file.
        size: length of the file in bytes.
        prewritten: write its zeros to the disk.

    Attributes:
        path, size: as above.
        failed: the file could not be made.
    """

    def __init__(self, files: Files, path: str, size: int, *, prewritten: bool) -> None:
        self.path = path
        self.size = size
        self.failed = False
        self._files = files
        self._prewritten = prewritten
        self._lock = threading.Lock()
        self._made: File | None = None
        self._wanted = True

    @property
    def ready(self) -> bool:
        """Whether ``take`` returns the file."""
        return self._made is not None

    def request(self, workers: Workers) -> None:
        """Let a worker make the file. It also fails if the workers are overloaded."""

        def finished(result: object) -> None:
            self.failed = isinstance(result, Exception)

        workers.submit(self._make, finished)

    def take(self) -> File | None:
        """Return the open file, which then belongs to the caller; ``None`` if it is not ready."""
        with self._lock:
            made, self._made = self._made, None
            return made

    def give_up(self) -> None:
        """Give the file up, made or not."""
        with self._lock:
            self._wanted = False
            made, self._made = self._made, None
        if made is not None:
            discard(self._files, made, self.path)

    def make_file(self, wanted: Wanted) -> File:
        """Make the file durably, on a worker. It may stop early once ``wanted`` returns false."""
        return make_file(self._files, self.path, self.size, wanted if self._prewritten else None)

    def _make(self) -> None:
        made = self.make_file(lambda: self._wanted)
        with self._lock:
            if self._wanted:
                self._made = made
                return
        discard(self._files, made, self.path)


def make_file(files: Files, path: str, size: int, prewritten_while: Wanted | None = None) -> File:
    """Create a file of zeros, durably.

    Args:
        files: the disk.
        path: path of the file.
        size: length of the file in bytes.
        prewritten_while: if given, the zeros are written to the disk, as long as this returns true.

    Raises:
        StorageError: the file could not be made, and was removed as far as possible.
    """
    with suppress(FileNotFoundError):
        files.remove(path)
    file = files.create(path)
    try:
        file.preallocate(size)
        if prewritten_while is not None:
            _prewrite(file, size, prewritten_while)
        file.sync()
    except StorageError:
        discard(files, file, path)
        raise
    return file


def discard(files: Files, file: File, path: str) -> None:
    """Close and remove a file that is not needed. The next start removes it if that fails."""
    file.close()
    with suppress(OSError, StorageError):
        files.remove(path)


def _prewrite(file: File, size: int, wanted: Wanted) -> None:
    """Write zeros to reserved space, which already reads as zeros, durably and in pieces that let commits run between.

    A file system records which part of reserved space was written. So a synchronous write into reserved space is two
    writes. Stops early once the file is no longer ``wanted``."""
    for at in range(0, size, len(_ZEROS)):
        if not wanted():
            return
        file.pwritev([memoryview(_ZEROS)[: size - at]], at, dsync=True)
