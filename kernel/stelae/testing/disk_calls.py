"""System calls on files, simulated on the virtual disk.

``RealFiles`` runs on them in tests. Each call is one operation of the disk, which loses in a crash what was not synced.
So tests check the methods of ``RealFiles`` themselves, and not a fake."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar

from stelae.sim.disk import VirtualDisk
from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import Full, StorageError, SyncFailed
from stelae.spi.services import Buffer

T = TypeVar("T")

FD_FIRST = 1 << 20
"""The first descriptor. It is so high that the real system refuses a descriptor that reaches it by mistake."""


@dataclass(slots=True)
class _OpenDescriptor:
    """What a descriptor refers to: a file, or a directory by its path."""

    file: VirtualFile | None
    path: str


class DiskCalls:
    """``OsCalls`` over a virtual disk.

    Attributes:
        disk: the virtual disk.
        made: name and path of each call that changed something or made it durable, in order.
    """

    def __init__(self, disk: VirtualDisk) -> None:
        self.disk = disk
        self.made: list[tuple[str, str]] = []
        self._open: dict[int, _OpenDescriptor] = {}
        self._next = FD_FIRST

    # -- descriptors -----------------------------------------------------------------------------

    def open(self, path: str, flags: int, mode: int = 0o777, /) -> int:
        """As ``os.open``. A directory can only be opened for reading."""
        if flags & os.O_CREAT and (flags & os.O_EXCL or not self.disk.exists(path)):
            found = _OpenDescriptor(self._record("create", path, lambda: self.disk.create(path)), path)
        elif stat.S_ISDIR(self.stat(path).st_mode):
            if flags & os.O_ACCMODE != os.O_RDONLY:
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
            found = _OpenDescriptor(None, path)
        elif flags & os.O_DIRECTORY:
            raise NotADirectoryError(errno.ENOTDIR, "is not a directory", path)
        else:
            writable = flags & os.O_ACCMODE != os.O_RDONLY
            found = _OpenDescriptor(self.disk.open(path, writable=writable), path)
        self._next += 1
        self._open[self._next] = found
        return self._next

    def close(self, fd: int, /) -> None:
        """As ``os.close``."""
        opened = self._open.pop(fd)
        if opened.file is not None:
            opened.file.close()

    def pread(self, fd: int, size: int, offset: int, /) -> bytes:
        """As ``os.pread``."""
        return _with_os_errors(lambda: self._file(fd).pread(size, offset))

    def pwrite(self, fd: int, data: Buffer, offset: int, /) -> int:
        """As ``os.pwrite``."""
        return self.pwritev(fd, [data], offset)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int, flags: int = 0, /) -> int:
        """As ``os.pwritev``."""
        dsync = bool(flags & getattr(os, "RWF_DSYNC", 0))
        file = self._file(fd)
        call = "pwritev dsync" if dsync else "pwritev"
        return self._record(call, file.path, lambda: file.pwritev(buffers, offset, dsync=dsync))

    def fsync(self, fd: int, /) -> None:
        """As ``os.fsync``, of a file or a directory."""
        opened = self._open[fd]
        if opened.file is None:
            self._record("fsync directory", opened.path, lambda: self.disk.sync_directory(opened.path))
        else:
            self._record("fsync", opened.path, opened.file.sync)

    def fdatasync(self, fd: int, /) -> None:
        """As ``os.fdatasync``."""
        file = self._file(fd)
        self._record("fdatasync", file.path, lambda: file.sync(data_only=True))

    def ftruncate(self, fd: int, size: int, /) -> None:
        """As ``os.ftruncate``."""
        file = self._file(fd)
        self._record("ftruncate", file.path, lambda: file.truncate(size))

    def posix_fallocate(self, fd: int, offset: int, size: int, /) -> None:
        """As ``os.posix_fallocate``."""
        file = self._file(fd)
        self._record("posix_fallocate", file.path, lambda: file.preallocate(offset + size))

    def fstat(self, fd: int, /) -> Any:
        """As ``os.fstat``: ``st_size`` and ``st_mode``."""
        opened = self._open[fd]
        if opened.file is None:
            return self.stat(opened.path)
        return SimpleNamespace(st_size=opened.file.size(), st_mode=stat.S_IFREG)

    # -- names -----------------------------------------------------------------------------------

    def stat(self, path: str, /) -> Any:
        """As ``os.stat``: ``st_size`` and ``st_mode``."""
        try:
            file = self.disk.open(path)
        except IsADirectoryError:
            return SimpleNamespace(st_size=0, st_mode=stat.S_IFDIR)
        return SimpleNamespace(st_size=file.size(), st_mode=stat.S_IFREG)

    def lstat(self, path: str, /) -> Any:
        """As ``stat``: the disk has no symbolic links."""
        return self.stat(path)

    def listdir(self, path: str, /) -> list[str]:
        """As ``os.listdir``, with the names in reverse order."""
        return self.disk.listdir(path)[::-1]

    def mkdir(self, path: str, mode: int = 0o777, /) -> None:
        """As ``os.mkdir``."""
        parent, _, _ = path.rstrip("/").rpartition("/")
        self.disk.listdir(parent or "/")
        if self.disk.exists(path):
            raise FileExistsError(errno.EEXIST, "exists", path)
        self._record("mkdir", path, lambda: self.disk.make_directory(path))

    def rename(self, source: str, target: str, /) -> None:
        """As ``os.rename``."""
        self._record("rename", source, lambda: self.disk.rename(source, target))

    def unlink(self, path: str, /) -> None:
        """As ``os.unlink``."""
        self._record("unlink", path, lambda: self.disk.remove(path))

    def rmdir(self, path: str, /) -> None:
        """As ``os.rmdir``."""
        if self.disk.listdir(path):
            raise OSError(errno.ENOTEMPTY, "is not empty", path)
        self._record("rmdir", path, lambda: self.disk.remove_tree(path))

    def statvfs(self, path: str, /) -> Any:
        """As ``os.statvfs``: ``f_bavail`` and ``f_frsize``."""
        return SimpleNamespace(f_bavail=self.disk.space_left(path), f_frsize=1)

    # -- inside ----------------------------------------------------------------------------------

    def _file(self, fd: int) -> VirtualFile:
        file = self._open[fd].file
        if file is None:
            raise IsADirectoryError(errno.EISDIR, "is a directory", self._open[fd].path)
        return file

    def _record(self, call: str, path: str, work: Callable[[], T]) -> T:
        found = _with_os_errors(work)
        self.made.append((call, path))
        return found


def _with_os_errors(work: Callable[[], T]) -> T:
    """Do the work; turn the disk's typed errors into the ``OSError`` of a real system."""
    try:
        return work()
    except Full as error:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), error.path) from error
    except (SyncFailed, StorageError) as error:
        raise OSError(errno.EIO, os.strerror(errno.EIO), error.path) from error
