"""The system calls that ``RealFiles`` is made of.

In production it is the module ``os`` itself, so a call costs what it did without this contract. Tests put a simulated
system in its place (``stelae.testing.disk_calls``): then each method of ``RealFiles`` is replayed call by call on a
disk that loses what was not synced, and a sync that is missing in one of them is found."""

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
        """Read up to ``size`` bytes; fewer are no error."""

    def pwrite(self, fd: int, data: Buffer, offset: int, /) -> int:
        """Write, and return how many bytes were written; fewer are no error."""

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int, flags: int = 0, /) -> int:
        """As ``pwrite``, of several buffers; with ``RWF_DSYNC`` what was written is durable on return."""

    def fsync(self, fd: int, /) -> None:
        """Make the contents of a file, or the names in a directory, durable."""

    def fdatasync(self, fd: int, /) -> None:
        """Make the contents of a file durable, and of its metadata what reading them needs."""

    def ftruncate(self, fd: int, size: int, /) -> None:
        """Cut or extend a file."""

    def posix_fallocate(self, fd: int, offset: int, size: int, /) -> None:
        """Reserve space and extend the file over it."""

    def fstat(self, fd: int, /) -> Any:
        """Attributes of an open file: ``st_size``, ``st_mode``."""

    def stat(self, path: str, /) -> Any:
        """Attributes of a file by its name."""

    def lstat(self, path: str, /) -> Any:
        """As ``stat``; of a symbolic link its own."""

    def listdir(self, path: str, /) -> list[str]:
        """Names in a directory, in any order."""

    def mkdir(self, path: str, mode: int = 0o777, /) -> None:
        """Create a directory whose parent exists."""

    def rename(self, source: str, target: str, /) -> None:
        """Rename atomically, in place of whatever had the name."""

    def unlink(self, path: str, /) -> None:
        """Remove the name of a file."""

    def rmdir(self, path: str, /) -> None:
        """Remove an empty directory."""

    def statvfs(self, path: str, /) -> Any:
        """Space of a file system: ``f_bavail``, ``f_frsize``."""
