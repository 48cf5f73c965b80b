"""The system calls that ``RealFiles`` makes.

In production this is the module ``os`` itself, so it costs nothing. Tests use a simulated system instead
(``stelae.testing.disk_calls``). It replays each method of ``RealFiles`` call by call on a disk that loses what was not
synced, and so finds a missing sync."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from stelae.spi.services import Buffer


class OsCalls(Protocol):
    """Functions of the module ``os``, with its arguments, results and errors.

    ``pwritev``, ``fdatasync`` and ``posix_fallocate`` may be missing, as they are on some systems."""

    def open(self, path: str, flags: int, mode: int = 0o777, /) -> int:
        """Open a file or a directory and return its descriptor."""

    def close(self, fd: int, /) -> None:
        """Close a descriptor; nothing is synced."""

    def pread(self, fd: int, size: int, offset: int, /) -> bytes:
        """Read up to ``size`` bytes. Fewer bytes are not an error."""

    def pwrite(self, fd: int, data: Buffer, offset: int, /) -> int:
        """Write, and return the number of written bytes. Fewer bytes are not an error."""

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int, flags: int = 0, /) -> int:
        """Write several buffers as ``pwrite`` does. With ``RWF_DSYNC`` the written bytes are durable on return."""

    def fsync(self, fd: int, /) -> None:
        """Make the contents of a file, or the names in a directory, durable."""

    def fdatasync(self, fd: int, /) -> None:
        """Make the contents of a file durable, and the metadata that are needed to read them."""

    def ftruncate(self, fd: int, size: int, /) -> None:
        """Cut or extend a file."""

    def posix_fallocate(self, fd: int, offset: int, size: int, /) -> None:
        """Reserve space and extend the file over it."""

    def fstat(self, fd: int, /) -> Any:
        """Attributes of an open file: ``st_size``, ``st_mode``."""

    def stat(self, path: str, /) -> Any:
        """Attributes of the file with this name."""

    def lstat(self, path: str, /) -> Any:
        """Attributes of the file with this name; for a symbolic link, those of the link."""

    def listdir(self, path: str, /) -> list[str]:
        """Names in a directory, in any order."""

    def mkdir(self, path: str, mode: int = 0o777, /) -> None:
        """Create a directory whose parent exists."""

    def rename(self, source: str, target: str, /) -> None:
        """Rename atomically, replacing the file that has the target name."""

    def unlink(self, path: str, /) -> None:
        """Remove the name of a file."""

    def rmdir(self, path: str, /) -> None:
        """Remove an empty directory."""

    def statvfs(self, path: str, /) -> Any:
        """Space of a file system: ``f_bavail``, ``f_frsize``."""
