"""Creates directories durably, and converts errors about names to typed errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stelae.spi.errors import Foreign, StorageError
from stelae.spi.services import Files


def parent_of(path: str) -> str:
    """Return the directory of a path."""
    return path.rpartition("/")[0] or "/"


def make_durable(files: Files, path: str) -> None:
    """Create a directory with its missing parents, and make all their names durable.

    The parent is always synced. A directory that exists may have been created by a process that was killed before it
    synced the name."""
    unsynced = [parent_of(path)]
    while not files.exists(unsynced[-1]):
        unsynced.append(parent_of(unsynced[-1]))
    files.make_directory(path)
    for directory in reversed(unsynced):
        files.sync_directory(directory)


@contextmanager
def misplaced(directory: str) -> Iterator[None]:
    """Convert errors about names to typed errors.

    Raises:
        Foreign: a directory is in the place of a file, or a file in that of a directory.
        StorageError: the name was removed meanwhile.
    """
    try:
        yield
    except OSError as error:
        path = str(error.filename or (error.args[0] if error.args else directory))
        if isinstance(error, IsADirectoryError):
            raise Foreign("found a directory in place of a file; move it away", path=path) from error
        if isinstance(error, (NotADirectoryError, FileExistsError)):
            raise Foreign("found a file in place of a directory; move it away", path=path) from error
        raise StorageError(f"it was removed while it was used: {error}", path=path) from error
