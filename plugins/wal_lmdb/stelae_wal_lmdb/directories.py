"""Directories of the engine, and the files in them that mean nothing after a crash."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from stelae.spi.errors import Foreign, StorageError
from stelae.spi.services import Files

SPOOL_PREFIX = "spool."


def prepare(files: Files, path: str) -> None:
    """Create a directory with its missing parents, and make its name and theirs durable.

    The parent is synced in any case: a process may have died between creating and syncing."""
    unsynced = [_parent_of(path)]
    while not files.exists(unsynced[-1]):
        unsynced.append(_parent_of(unsynced[-1]))
    files.make_directory(path)
    for directory in reversed(unsynced):
        files.sync_directory(directory)


def spool_path(directory: str, number: int, count: int) -> str:
    """Where a snapshot is written; its name is removed as soon as it is open."""
    return f"{directory}/{SPOOL_PREFIX}{number}.{count}"


def remove_spools(files: Files, directory: str) -> None:
    """Remove snapshots whose process died before it removed their names."""
    for name in files.listdir(directory):
        if name.startswith(SPOOL_PREFIX):
            with suppress(IsADirectoryError):  # That is none of ours.
                files.remove(f"{directory}/{name}")


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


def _parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"
