"""The virtual disk: a file system in memory that loses un-synced data in a crash, as a real one does.

``VirtualDisk`` implements ``stelae.spi.services.Files``. A ``crash`` may lose, tear or reorder
changes that were not synced. Synced changes always survive. Faults are configured through
``disk.faults``: a space limit, failing syncs and reads, and power loss after a given operation or
byte. Nothing depends on time, identity or hash order, so a run is a function of its random generator.

To crash at every operation of a scenario::

    disk.faults.lose_power_after(operations=n)
    try:
        scenario(disk)
    except PowerLost:
        disk = disk.crash(random.Random(seed))"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache

from stelae.host.atomic_replace import replace_file
from stelae.sim.disk_contents import SECTOR_BYTES, FileContents, Survival
from stelae.sim.disk_faults import PowerLost, VirtualDiskFaults
from stelae.sim.disk_file import VirtualFile
from stelae.sim.disk_names import Directory, Inode, NameEdit, VirtualNames
from stelae.spi.errors import BadIdentifier, Full, Locked, SyncFailed
from stelae.spi.services import Buffer

UNBOUNDED_BYTES = 1 << 50
"""What ``space_left`` returns for a disk without a limit."""


class VirtualLock:
    """An exclusive lock on one inode of a virtual disk."""

    __slots__ = ("_locked_inodes", "_number")

    def __init__(self, locked_inodes: set[int], number: int) -> None:
        self._locked_inodes = locked_inodes
        self._number: int | None = number
        locked_inodes.add(number)

    def release(self) -> None:
        """Release the lock. Releasing it twice is harmless."""
        if self._number is not None:
            self._locked_inodes.discard(self._number)
            self._number = None


class VirtualDisk:
    """An in-memory ``Files`` with crash semantics. Only one thread may write at a time.

    Args:
        capacity_bytes: limit for the sum of all file lengths; ``None`` for no limit.

    Attributes:
        faults: the configured faults, and counters of operations and bytes.
        replacing, replaced: called with path and contents before and after each replacement of a small file.
    """

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.faults = VirtualDiskFaults(capacity_bytes)
        self.replacing: Callable[[str, bytes], None] = _ignore
        self.replaced: Callable[[str, bytes], None] = _ignore
        self._names = VirtualNames()
        self._numbers = 0
        self._used_bytes = 0
        self._locked: set[int] = set()

    # -- tests and simulator ---------------------------------------------------------------------

    def crash(self, rng: random.Random, survival: Survival = Survival.DRAWN) -> VirtualDisk:
        """Lose power now and return the disk as the next start finds it. This disk cannot be used any more."""
        self.faults.powered = False
        after = VirtualDisk(self.faults.capacity_bytes)
        after.faults.full_in = self.faults.full_in
        after._names = self._names.after_crash(rng, survival)
        after._numbers = self._numbers
        after._used_bytes = _size(after._names.root)
        return after

    def clone(self) -> VirtualDisk:
        """Return an independent copy with the un-synced changes, but without handles, locks and faults."""
        twin = VirtualDisk(self.faults.capacity_bytes)
        twin.faults.full_in = self.faults.full_in
        twin._names = self._names.copy()
        twin._numbers = self._numbers
        twin._used_bytes = self._used_bytes
        return twin

    def damage(self, path: str, offset: int, mask: int = 0x01) -> None:
        """Flip the bits ``mask`` of the byte at ``offset``, durably, as a failing medium does."""
        self._file(path).data[offset] ^= mask

    def cut(self, path: str, size: int) -> None:
        """Cut a file to ``size`` bytes, durably."""
        contents = self._file(path)
        self._used_bytes -= len(contents.data) - size
        del contents.data[size:]
        contents.changes.clear()

    def is_durable(self, path: str) -> bool:
        """Return true if the file, its contents and its name would survive a power loss now."""
        node: Inode | None = self._names.root
        for name in _parts(path):
            if not isinstance(node, Directory) or name not in node.durable:
                return False
            if node.durable[name] is not node.entries.get(name):
                return False
            node = node.durable[name]
        return isinstance(node, FileContents) and not node.changes

    def tree(self) -> dict[str, bytes]:
        """Return the visible contents of every file, by path, in order of the paths."""
        found: dict[str, bytes] = {}
        _collect(self._names.root, "", found)
        return found

    def allocate(self, size_bytes: int, path: str) -> None:
        """Allocate space, or free it if ``size_bytes`` is negative.

        Raises:
            Full: the space left is too small; nothing is allocated.
        """
        limit = self.faults.capacity_bytes
        if size_bytes > 0 and limit is not None and self._used_bytes + size_bytes > limit:
            raise Full(f"no space for {size_bytes} bytes", path=path)
        self._used_bytes += size_bytes

    def free_bytes(self) -> int:
        """Return the number of bytes that can still be allocated."""
        limit = self.faults.capacity_bytes
        return UNBOUNDED_BYTES if limit is None else max(0, limit - self._used_bytes)

    # -- Files -----------------------------------------------------------------------------------

    def create(self, path: str) -> VirtualFile:
        """Create a file, which must not exist, and open it for writing."""
        directory, name = self._parent(path)
        self.faults.before("create", path)
        if name in directory.entries:
            raise FileExistsError(path)
        contents = FileContents(self._number())
        self._names.change((directory, name, contents))
        return VirtualFile(self, contents, path, writable=True)

    def open(self, path: str, *, writable: bool = False) -> VirtualFile:
        """Open an existing file."""
        self.faults.check_power()
        return VirtualFile(self, self._file(path), path, writable)

    def exists(self, path: str) -> bool:
        """Return true if a file or directory of that name exists."""
        self.faults.check_power()
        return self._find(path) is not None

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        self.faults.check_power()
        return sorted(self._directory(path).entries)

    def make_directory(self, path: str) -> None:
        """Create a directory and missing parents. Not yet durable."""
        here = self._names.root
        for name in _parts(path):
            node = here.entries.get(name)
            if node is None:
                self.faults.before("make_directory", path)
                node = Directory(self._number())
                self._names.change((here, name, node))
            if not isinstance(node, Directory):
                raise FileExistsError(path)
            here = node

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing ``target`` if it is a file. Not yet durable."""
        old_parent, old_name = self._parent(source)
        new_parent, new_name = self._parent(target)
        self.faults.before("rename", source)
        node = old_parent.entries.get(old_name)
        if node is None:
            raise FileNotFoundError(source)
        replaced = new_parent.entries.get(new_name)
        if replaced is node:
            return
        if isinstance(replaced, Directory):
            raise IsADirectoryError(target)
        if replaced is not None:
            if isinstance(node, Directory):
                raise NotADirectoryError(target)
            self._unlink(replaced)
        gone: NameEdit = (old_parent, old_name, None)
        self._names.change(gone, (new_parent, new_name, node))

    def remove(self, path: str) -> None:
        """Remove a file. Not yet durable."""
        directory, name = self._parent(path)
        self.faults.before("remove", path)
        self._unlink(self._file(path))
        self._names.change((directory, name, None))

    def remove_tree(self, path: str) -> None:
        """Remove a directory with its contents, name by name. Harmless if the directory does not exist."""
        node = self._find(path)
        if node is None:
            return
        if not isinstance(node, Directory):
            raise NotADirectoryError(path)
        for name in sorted(node.entries):
            child = f"{path}/{name}"
            if isinstance(node.entries[name], Directory):
                self.remove_tree(child)
            else:
                self.remove(child)
        self.faults.before("remove_directory", path)
        directory, name = self._parent(path)
        self._names.change((directory, name, None))

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        directory = self._directory(path)
        self.faults.before("sync_directory", path)
        if self.faults.sync_fails(path):
            raise SyncFailed("the sync of a directory failed", path=path)
        self._names.sync(directory)

    def read_bytes(self, path: str) -> bytes:
        """Return the contents of a small file."""
        file = self.open(path)
        return file.pread(file.size(), 0)

    def replace(self, path: str, data: Buffer) -> None:
        """Replace a small file atomically and durably, with production's code."""
        parent, name = _split(path)
        self.replacing(path, bytes(data))
        replace_file(self, f"{parent.rstrip('/')}/{name}", data)
        self.replaced(path, bytes(data))

    def space_left(self, path: str) -> int:
        """Return the number of bytes that can still be written."""
        self._directory(path)
        return self.free_bytes()

    def lock(self, path: str) -> VirtualLock:
        """Take an exclusive lock on a file, creating it when missing."""
        if not self.exists(path):
            self.create(path).close()
        number = self._file(path).number
        if number in self._locked:
            raise Locked("another process holds the lock", path=path)
        return VirtualLock(self._locked, number)

    # -- paths -----------------------------------------------------------------------------------

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _unlink(self, contents: FileContents) -> None:
        contents.linked = False
        self._used_bytes -= len(contents.data)

    def _find(self, path: str) -> Inode | None:
        node: Inode | None = self._names.root
        for name in _parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.entries.get(name)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(path)
        return node

    def _file(self, path: str) -> FileContents:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(path)
        if isinstance(node, Directory):
            raise IsADirectoryError(path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, name = _split(path)
        return self._directory(parent), name


def _ignore(_path: str, _data: bytes) -> None:
    """Do nothing: replacements are not observed."""


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...]:
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if not path or "\0" in path or ".." in parts:
        raise BadIdentifier("path", path, "non-empty text without NUL and without '..'")
    return parts


def _split(path: str) -> tuple[str, str]:
    parts = _parts(path)
    if not parts:
        raise BadIdentifier("path", path, "the name of a file, not the root")
    return "/".join(parts[:-1]) or "/", parts[-1]


def _size(directory: Directory) -> int:
    total = 0
    for node in directory.entries.values():
        total += _size(node) if isinstance(node, Directory) else len(node.data)
    return total


def _collect(directory: Directory, prefix: str, found: dict[str, bytes]) -> None:
    for name in sorted(directory.entries):
        node = directory.entries[name]
        if isinstance(node, Directory):
            _collect(node, f"{prefix}/{name}", found)
        else:
            found[f"{prefix}/{name}"] = bytes(node.data)


__all__ = ["SECTOR_BYTES", "PowerLost", "Survival", "VirtualDisk", "VirtualFile", "VirtualLock"]
