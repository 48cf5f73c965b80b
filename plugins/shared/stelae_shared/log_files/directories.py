"""Directories whose names survive a crash, and names in whose place something else stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stelae.spi.errors import Foreign, StorageError
from stelae.spi.services import Files


def parent_of(path: str) -> str:
    """The directory that holds a name."""
    return path.rpartition("/")[0] or "/"


def make_durable(files: Files, path: str) -> None:
    """Create a directory with its missing parents, and make its name and theirs durable.

    A directory that is there may be left by a process that was killed before it synced the name,
    so the parent is synced in any case."""
    unsynced = [parent_of(path)]
    while not files.exists(unsynced[-1]):
        unsynced.append(parent_of(unsynced[-1]))
    files.make_directory(path)
    for directory in reversed(unsynced):
        files.sync_directory(directory)


@contextmanager
def misplaced(directory: str) -> Iterator[None]:
    """Give an error about a name its type: what stands there is not what the engine puts there.

    Raises:
        Foreign: a directory stands where a file belongs, or a file where a directory does.
        StorageError: the name went away meanwhile.
    """
    try:
        yield
    except OSError as error:
        path = str(error.filename or (error.args[0] if error.args else directory))
        if isinstance(error, IsADirectoryError):
            raise Foreign("a directory stands where a file belongs; move it away", path=path) from error
        if isinstance(error, (NotADirectoryError, FileExistsError)):
            raise Foreign("a file stands where a directory belongs; move it away", path=path) from error
        raise StorageError(f"it was there and is not any more: {error}", path=path) from error
