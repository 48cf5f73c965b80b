"""Replaces a small file atomically and durably, with the operations of any ``Files``.

The real disk and the simulated one share this code, so the simulator tests the order of syncs that production has. The
safety of votes, superblocks and the clock's ceiling depends on it.

Ordering and durability
    1. A temporary file that an earlier attempt left is removed.
    2. The new contents are written to the temporary file, in the same directory, and synced.
    3. The temporary file is renamed over the file. From here on, readers see the new contents.
    4. The directory is synced. Only now is the rename durable.

A crash before step 4 leaves the old contents or the new ones: never a mixture, and never no file."""

from contextlib import closing

from stelae.spi.errors import Full, SyncFailed
from stelae.spi.services import Buffer, Files


def replace_file(files: Files, path: str, data: Buffer) -> None:
    """Replace the file at ``path``, or create it. Durable on return.

    Raises:
        Full: the file still has the old contents.
        SyncFailed: the file has the old or the new contents, and a crash may change which."""
    parent, slash, name = path.rpartition("/")
    temporary = f"{parent}{slash}.{name}.tmp"
    if files.exists(temporary):
        files.remove(temporary)
    _write(files, temporary, data)
    _publish(files, temporary, path, parent or slash or ".")


def _write(files: Files, path: str, data: Buffer) -> None:
    """Create a file with these contents and sync it. Its name is not durable yet."""
    with closing(files.create(path)) as file:
        try:
            file.pwritev([data], 0)
            file.sync()
        except (Full, SyncFailed):
            files.remove(path)
            raise


def _publish(files: Files, temporary: str, path: str, parent: str) -> None:
    """Rename the temporary file over the file, durably."""
    files.rename(temporary, path)
    files.sync_directory(parent)
