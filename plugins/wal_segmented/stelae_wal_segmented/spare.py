"""A segment in the making: its space is reserved by a worker while appends go on elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from stelae.spi.errors import StorageError
from stelae.spi.services import File, Files, Workers

_ZEROS = bytes(1 << 20)


class Spare:
    """One preallocated file without contents, name or meaning yet.

    The WAL thread asks whether it is ready, takes it, or gives it up; a worker makes it. Whoever
    comes second after a give-up removes the file.

    Attributes:
        path, size: of the file.
        error: why it could not be made.
    """

    def __init__(self, files: Files, path: str, size: int, *, prewritten: bool) -> None:
        self._files = files
        self._prewritten = prewritten
        self._lock = threading.Lock()
        self._file: File | None = None
        self._unwanted = False
        self.path = path
        self.size = size
        self.error: Exception | None = None

    @property
    def ready(self) -> bool:
        """Say whether :meth:`take` may be called."""
        return self._file is not None

    def request(self, workers: Workers) -> None:
        """Let a worker make the file."""

        def finished(result: object) -> None:
            if isinstance(result, Exception):
                self.error = result

        workers.submit(self._work, finished)

    def take(self) -> File:
        """Take over the open file."""
        with self._lock:
            file, self._file = self._file, None
        assert file is not None
        return file

    def give_up(self) -> None:
        """Let go of the file, made or not."""
        with self._lock:
            self._unwanted = True
            file, self._file = self._file, None
        if file is not None:
            self._discard(file)

    def _work(self) -> None:
        wanted = (lambda: not self._unwanted) if self._prewritten else None
        file = make_file(self._files, self.path, self.size, wanted)
        with self._lock:
            if not self._unwanted:
                self._file = file
                return
        self._discard(file)

    def _discard(self, file: File) -> None:
        file.close()
        with suppress(OSError, StorageError):
            self._files.remove(self.path)


def make_file(files: Files, path: str, size: int, prewritten_while: Callable[[], bool] | None = None) -> File:
    """Create a file, reserve its space and make both durable.

    Args:
        prewritten_while: if given, zeros are written there, for as long as this says so.

    Raises:
        StorageError: no space, or the sync failed; the file is gone again as far as possible.
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
        file.close()
        with suppress(OSError, StorageError):
            files.remove(path)
        raise
    return file


def _prewrite(file: File, size: int, wanted: Callable[[], bool]) -> None:
    """Write zeros where they can be read already, durably, in pieces between which commits get their turn.

    Of space that is only reserved, a file system notes what was written: a synchronous write there is two.
    Stops early once the file is not ``wanted`` any more."""
    for at in range(0, size, len(_ZEROS)):
        if not wanted():
            return
        file.pwritev([memoryview(_ZEROS)[: size - at]], at, dsync=True)
