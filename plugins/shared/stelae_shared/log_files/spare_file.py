"""Space for the next segment, reserved by a worker while appends go on in the open one."""

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
    """One reserved file without contents or meaning yet.

    The log asks for it, takes it or gives it up; a worker makes it. Whichever of worker and giving up comes last
    removes the file.

    Attributes:
        path, size: of the file.
        failed: it could not be made.

    Args:
        prewritten: its zeros are written to the disk.
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
        """Say whether ``take`` gives the file."""
        return self._made is not None

    def request(self, workers: Workers) -> None:
        """Have it made; workers that have too much to do fail it, too."""

        def finished(result: object) -> None:
            self.failed = isinstance(result, Exception)

        workers.submit(self._make, finished)

    def take(self) -> File | None:
        """Take the open file over, if it is ready."""
        with self._lock:
            made, self._made = self._made, None
            return made

    def give_up(self) -> None:
        """Let go of it, made or not."""
        with self._lock:
            self._wanted = False
            made, self._made = self._made, None
        if made is not None:
            discard(self._files, made, self.path)

    def make_file(self, wanted: Wanted) -> File:
        """Make the file durably, on a worker; it may stop early once ``wanted`` says no."""
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
        prewritten_while: if given, the zeros are written to the disk, for as long as this says so.

    Raises:
        StorageError: it could not be made, and is gone again as far as possible.
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
    """Close and remove a file that nobody needs; left-overs go at the next start."""
    file.close()
    with suppress(OSError, StorageError):
        files.remove(path)


def _prewrite(file: File, size: int, wanted: Wanted) -> None:
    """Write zeros where they can be read already, durably, in pieces between which commits get their turn.

    Of space that is only reserved, a file system notes what was written: a synchronous write there is two.
    Stops early once the file is not ``wanted`` any more."""
    for at in range(0, size, len(_ZEROS)):
        if not wanted():
            return
        file.pwritev([memoryview(_ZEROS)[: size - at]], at, dsync=True)
