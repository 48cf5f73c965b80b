"""An open file of the virtual disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stelae.sim.disk_contents import FileContents
from stelae.sim.disk_faults import PowerLost, VirtualDiskFaults
from stelae.spi.errors import Full, StorageError, SyncFailed
from stelae.spi.services import Buffer


class DiskSpace(Protocol):
    """The space of a disk, from which its files allocate."""

    faults: VirtualDiskFaults

    def allocate(self, size_bytes: int, path: str) -> None:
        """Allocate space, or free it if ``size_bytes`` is negative. Raises ``Full`` and then allocates nothing."""
        ...

    def free_bytes(self) -> int:
        """Return the number of bytes that can still be allocated."""
        ...


class VirtualFile:
    """An open handle of an inode. All handles of one inode see each other's writes at once."""

    __slots__ = ("_contents", "_open", "_space", "_writable", "path")

    def __init__(self, space: DiskSpace, contents: FileContents, path: str, writable: bool) -> None:
        self._space = space
        self._contents = contents
        self._writable = writable
        self._open = True
        self.path = path

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to ``size`` bytes at ``offset``; fewer only at the end of the file.

        Raises:
            StorageError: the faults of the disk make this read fail.
        """
        self._check(writing=False)
        if self._space.faults.read_fails(self.path):
            raise StorageError("the read failed", path=self.path, offset=offset)
        return bytes(self._contents.data[offset : offset + size])

    def pwritev(self, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
        """Write all buffers one after the other. With ``dsync`` they are durable on return.

        On a full disk a part of the bytes may have been written when ``Full`` is raised, as on a real disk."""
        self._check(writing=True)
        faults, contents = self._space.faults, self._contents
        faults.before("write", self.path)
        if faults.full_in is not None and self.path.startswith(faults.full_in):
            raise Full("no space to write to this file", path=self.path)
        payload = b"".join(buffers)
        try:
            self._allocate(max(0, offset + len(payload) - len(contents.data)))
        except Full:
            self._write_what_fits(payload, offset)
            raise
        if dsync and faults.none_set and not contents.changes:
            faults.before("dsync", self.path)
            contents.write_durably(payload, offset)
            return faults.writable(len(payload))
        length = faults.writable(len(payload))
        if length < len(payload):
            contents.write(payload[:length], offset)
            faults.powered = False
            raise PowerLost(f"power lost after {length} bytes of a write to {self.path}")
        contents.write(payload, offset)
        if dsync:
            self._sync("dsync")
            contents.sync_last()
        return length

    def sync(self, *, data_only: bool = False) -> None:
        """Make all writes durable. ``data_only`` makes no difference on the virtual disk."""
        self._check(writing=False)
        self._sync("sync_data" if data_only else "sync")
        self._contents.sync()

    def preallocate(self, size: int) -> None:
        """Make the file at least ``size`` bytes long. The added bytes read as zeros."""
        self._check(writing=True)
        self._space.faults.before("preallocate", self.path)
        missing = size - len(self._contents.data)
        if missing > 0:
            self._allocate(missing)
            self._contents.resize(size)

    def truncate(self, size: int) -> None:
        """Truncate or extend the file to ``size`` bytes."""
        self._check(writing=True)
        self._space.faults.before("truncate", self.path)
        self._allocate(size - len(self._contents.data))
        self._contents.resize(size)

    def size(self) -> int:
        """Return the length in bytes."""
        self._check(writing=False)
        return len(self._contents.data)

    def close(self) -> None:
        """Close the handle without a sync. Closing it twice is harmless."""
        self._open = False

    def _write_what_fits(self, payload: bytes, offset: int) -> None:
        contents = self._contents
        room = len(contents.data) + self._space.free_bytes() - offset
        if room > 0:
            self._allocate(max(0, offset + room - len(contents.data)))
            contents.write(payload[:room], offset)

    def _allocate(self, size_bytes: int) -> None:
        if self._contents.linked:
            self._space.allocate(size_bytes, self.path)

    def _sync(self, operation: str) -> None:
        faults = self._space.faults
        faults.before(operation, self.path)
        if self._contents.sync_failed:
            faults.on_use_after_failed_sync("a sync", self.path)
        if faults.sync_fails(self.path):
            self._contents.fail_sync()
            raise SyncFailed("the sync failed", path=self.path)

    def _check(self, *, writing: bool) -> None:
        if not self._open:
            raise ValueError(f"{self.path} is closed")
        if writing and not self._writable:
            raise StorageError("the file was opened for reading", path=self.path)
        self._space.faults.check_power()
        if writing and self._contents.sync_failed:
            self._space.faults.on_use_after_failed_sync("a write", self.path)
