"""The directory of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stelae.spi.errors import Foreign, StorageError
from stelae.spi.services import Files


def make_directory(files: Files, path: str) -> None:
    """Create a directory with its missing parents, durably.

    Its name may be there and not durable, after a process was killed: parents are synced in any case."""
    parents = [path.rpartition("/")[0] or "/"]
    while not files.exists(parents[-1]):
        parents.append(parents[-1].rpartition("/")[0] or "/")
    files.make_directory(path)
    for parent in reversed(parents):
        files.sync_directory(parent)


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
