"""Replacing a small file atomically and durably, of the operations of any ``Files``.

The real disk and the virtual one share these functions, so the simulator replays the order of syncs that production
has. Votes, superblocks and the clock's ceiling rest on it.

Ordering and durability
    1. A leftover neighbour of an earlier attempt is removed.
    2. The new contents are written to the neighbour and synced, before any name leads to them.
    3. The neighbour is renamed over the file: from here on readers see the new contents.
    4. The directory is synced: only now is the rename durable, and the replacement may be relied upon.

A crash before 4 leaves the old contents or the new ones, never a mixture and never neither."""

from contextlib import closing

from stelae.spi.errors import Full, SyncFailed
from stelae.spi.services import Buffer, Files


def replace_file(files: Files, path: str, data: Buffer) -> None:
    """Replace the file at ``path``, or create it; durable on return.

    Raises:
        Full: the old contents are still in place.
        SyncFailed: the old contents or the new ones are, and a crash may change which."""
    parent, slash, name = path.rpartition("/")
    temporary = f"{parent}{slash}.{name}.tmp"
    if files.exists(temporary):
        files.remove(temporary)
    _write(files, temporary, data)
    _publish(files, temporary, path, parent or slash or ".")


def _write(files: Files, path: str, data: Buffer) -> None:
    """Create a file with these contents, durable under no name yet."""
    with closing(files.create(path)) as file:
        try:
            file.pwritev([data], 0)
            file.sync()
        except (Full, SyncFailed):
            files.remove(path)
            raise


def _publish(files: Files, temporary: str, path: str, parent: str) -> None:
    """Give the file its name, durably."""
    files.rename(temporary, path)
    files.sync_directory(parent)
