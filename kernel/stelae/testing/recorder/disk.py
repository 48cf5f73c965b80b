"""A virtual disk that repeats recorded calls and gives the states that a crash may leave.

Unsynced changes consist of *pieces*: sectors of writes, changes of size, operations on names. After a crash any subset
of the pieces may be on the disk, as far as the order of operations on names allows. ``image_keeping`` returns one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from stelae.sim.disk import SECTOR_BYTES, Survival, VirtualDisk
from stelae.sim.disk_contents import FileChange, FileContents
from stelae.sim.disk_names import Directory, NameChange, VirtualNames
from stelae.testing.recorder import calls
from stelae.testing.recorder.calls import SystemCall
from stelae.testing.recorder.image import DiskImage


class RecordedDisk(VirtualDisk):
    """A virtual disk that begins with a durable image and repeats recorded calls."""

    @classmethod
    def holding(cls, image: DiskImage) -> RecordedDisk:
        """Return a disk that holds an image durably."""
        disk = cls()
        for path in image.directories:
            disk.make_directory(path)
        for path, data in image.files.items():
            file = disk.create(path)
            file.pwritev([data], 0)
            file.sync()
            file.close()
        for path in ("/", *image.directories):
            disk.sync_directory(path)
        return disk

    def repeat(self, call: SystemCall) -> None:
        """Repeat a call.

        Raises:
            OSError, StelaeError: the call cannot have succeeded on this disk.
            ValueError: the call cannot be repeated.
        """
        match call:
            case calls.RecordedWrite(path, offset, data, dsync):
                self.open(path, writable=True).pwritev([data], offset, dsync=dsync)
            case calls.Resize(path, size):
                file = self.open(path, writable=True)
                if file.size() != size:
                    file.truncate(size)
            case calls.RecordedSync(path):
                self._sync(path)
            case calls.Create(path):
                self.create(path).close()
            case calls.MakeDirectory(path):
                self.make_directory(path)
            case calls.Rename(path, target):
                self.rename(path, target)
            case calls.Remove(path):
                self.remove(path)
            case calls.RemoveDirectory(path):
                self.remove_tree(path)
            case calls.Unknown(path):
                raise ValueError(f"a change of {path} that cannot be repeated")
            case calls.Mapped() | calls.Mark():
                pass

    def copy(self) -> RecordedDisk:
        """Return an independent copy, unsynced changes included."""
        twin = RecordedDisk()
        twin._names = self._names.copy()
        twin._numbers = self._numbers
        return twin

    def image(self) -> DiskImage:
        """Return the visible files and directories."""
        return DiskImage(tuple(_directories(self._names.root, "")), self.tree())

    def pieces(self) -> int:
        """Return how many pieces a crash may keep or lose."""
        split = [piece for contents in _files(self._names) for piece in _pieces(contents)]
        return sum(not piece.forced for piece in split) + len(self._names.pending)

    def image_keeping(self, kept: Sequence[bool]) -> DiskImage:
        """Return the disk after a crash that kept these pieces: first those of files, then operations on names.

        An operation on a name is also lost if an earlier one on the same name is."""
        twin, chosen = self.clone(), iter(kept)
        for contents in _files(twin._names):
            contents.changes = _pieces(contents)
            for piece in contents.changes:
                piece.forced = piece.forced or next(chosen)
        lost: list[NameChange] = []
        for change in twin._names.pending:
            if not next(chosen) or any(change.touches(other) for other in lost):
                lost.append(change)
        _settle(twin._names, lost)
        return _image(twin.crash(random.Random(0), Survival.LOST))

    def image_drawn(self, rng: random.Random) -> DiskImage:
        """Return the disk after a random crash of the virtual disk, which also tears within a sector."""
        return _image(self.clone().crash(rng, Survival.DRAWN))

    def _sync(self, path: str) -> None:
        try:
            self.sync_directory(path)
        except NotADirectoryError:
            self.open(path).sync()


def _settle(names: VirtualNames, lost: list[NameChange]) -> None:
    """Make every operation on names durable, except the lost ones."""
    names.pending = [change for change in names.pending if change not in lost]
    for change in names.pending:
        for directory, name, node in change.edits:
            if node is None:
                directory.durable.pop(name, None)
            else:
                directory.durable[name] = node
    names.pending = []


def _image(disk: VirtualDisk) -> DiskImage:
    return DiskImage(tuple(_directories(disk._names.root, "")), disk.tree())


def _directories(directory: Directory, prefix: str) -> Iterator[str]:
    for name, node in sorted(directory.entries.items()):
        if isinstance(node, Directory):
            yield f"{prefix}/{name}"
            yield from _directories(node, f"{prefix}/{name}")


def _files(names: VirtualNames) -> list[FileContents]:
    """Return every file that has, had or may get a name, in order of creation."""
    found: dict[int, FileContents] = {}
    waiting, seen = [names.root], set()
    while waiting:
        directory = waiting.pop()
        if directory.number in seen:
            continue
        seen.add(directory.number)
        pending = [node for change in names.pending for _, _, node in change.edits if node is not None]
        for node in (*directory.entries.values(), *directory.durable.values(), *pending):
            if isinstance(node, Directory):
                waiting.append(node)
            else:
                found[node.number] = node
    return [found[number] for number in sorted(found)]


def _pieces(contents: FileContents) -> list[FileChange]:
    """Return the changes of a file. Those that are not durable are cut at sectors."""
    found: list[FileChange] = []
    for change in contents.changes:
        if change.forced or len(change.new) == 0:
            found.append(change)
            continue
        start, end = change.offset, change.offset + len(change.new)
        while start < end:
            stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
            part = slice(start - change.offset, stop - change.offset)
            found.append(FileChange(start, change.old[part], change.new[part], change.size_old, change.size_new))
            start = stop
    return found
