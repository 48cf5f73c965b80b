"""Disk fault injection: ``RealFiles`` behind a fault seam, for tests with real processes.

A node has it only if ``[chaos] disk_rules`` in its ``node.toml`` names a file of rules. Then anyone who can write that
file can make the node's disk fail while the node runs. No message can do that. Without the setting, files are used
without the seam."""

import errno
import os
from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from stelae.machine.files import RealFile, RealFiles, write_error
from stelae.spi.errors import Full, StorageError, SyncFailed
from stelae.spi.services import Buffer


class DiskOperation(StrEnum):
    """A kind of operation on a file or directory."""

    READ = "read"
    WRITE = "write"
    SYNC = "sync"
    METADATA = "metadata"  #: Names and sizes: create, open, rename, remove, list, truncate.


class DiskFaultSeam(Protocol):
    """Decides which operations fail."""

    @property
    def active(self) -> bool:
        """Whether any operation may fail now."""

    def judge(self, path: str, operation: str) -> int:
        """Return the ``errno`` with which an operation fails; 0: it does not fail."""


class FaultyFile(RealFile):
    """A real file whose operations pass the fault seam first."""

    __slots__ = ("_seam",)

    def __init__(self, fd: int, path: str, seam: DiskFaultSeam) -> None:
        super().__init__(fd, path)
        self._seam = seam

    def pread(self, size: int, offset: int) -> bytes:
        if found := self._seam.judge(self.path, DiskOperation.READ):
            raise StorageError(f"cannot read: {os.strerror(found)}", path=self.path, offset=offset)
        return super().pread(size, offset)

    def pwritev(self, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
        self._check_write(offset)
        if dsync:
            self._check_sync()
        return super().pwritev(buffers, offset, dsync=dsync)

    def sync(self, *, data_only: bool = False) -> None:
        self._check_sync()
        super().sync(data_only=data_only)

    def preallocate(self, size: int) -> None:
        self._check_write(0)
        super().preallocate(size)

    def truncate(self, size: int) -> None:
        self._check_write(size)
        super().truncate(size)

    def size(self) -> int:
        check_name(self._seam, self.path)
        return super().size()

    def _check_write(self, offset: int) -> None:
        if found := self._seam.judge(self.path, DiskOperation.WRITE):
            raise write_error(OSError(found, os.strerror(found)), self.path, offset)

    def _check_sync(self) -> None:
        if found := self._seam.judge(self.path, DiskOperation.SYNC):
            raise SyncFailed(f"the sync failed: {os.strerror(found)}", path=self.path)


class FaultyFiles(RealFiles):
    """``RealFiles`` behind a fault seam."""

    def __init__(self, seam: DiskFaultSeam) -> None:
        self.seam = seam

    def create(self, path: str) -> RealFile:
        check_name(self.seam, path)
        return self._behind(super().create(path))

    def open(self, path: str, *, writable: bool = False) -> RealFile:
        check_name(self.seam, path)
        return self._behind(super().open(path, writable=writable))

    def exists(self, path: str) -> bool:
        check_name(self.seam, path)
        return super().exists(path)

    def listdir(self, path: str) -> list[str]:
        check_name(self.seam, path)
        return super().listdir(path)

    def make_directory(self, path: str) -> None:
        check_name(self.seam, path)
        super().make_directory(path)

    def rename(self, source: str, target: str) -> None:
        check_name(self.seam, source)
        check_name(self.seam, target)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        check_name(self.seam, path)
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        check_name(self.seam, path)
        super().remove_tree(path)

    def sync_directory(self, path: str) -> None:
        if found := self.seam.judge(path, DiskOperation.SYNC):
            raise SyncFailed(f"the sync failed: {os.strerror(found)}", path=path)
        super().sync_directory(path)

    def space_left(self, path: str) -> int:
        check_name(self.seam, path)
        return super().space_left(path)

    def _behind(self, file: RealFile) -> FaultyFile:
        """Return the same file behind the seam, with its own descriptor."""
        fd = os.dup(file.fileno())
        file.close()
        return FaultyFile(fd, file.path, self.seam)


def check_name(seam: DiskFaultSeam, path: str) -> None:
    """Raise the error of ``RealFiles`` for a failed operation on a name, if the seam says so."""
    if found := seam.judge(path, DiskOperation.METADATA):
        fact = os.strerror(found)
        raise Full(f"no space: {fact}", path=path) if found == errno.ENOSPC else StorageError(fact, path=path)
