"""Making directories whose names survive a crash."""

from __future__ import annotations

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
