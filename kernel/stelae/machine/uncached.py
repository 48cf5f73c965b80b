"""Writes past the system's cache: on which file systems they are made, and the memory that they are made from.

A write of whole blocks over data that are there goes from our memory to the disk as it is: no copy into the cache, and
with ``io_uring`` no worker of the system that waits for the disk. 264 KiB took 190 us that way, and 260 through the
cache. Who reads such data later reads them from the disk."""

import ctypes
import mmap
import os
import re
from contextlib import suppress
from functools import cache
from typing import NamedTuple

FILE_SYSTEMS = ("ext4", "xfs")
"""Where a write past the cache and reads through it see each other, and writing over data changes nothing else."""

BEGUN_WITHOUT_WAITING = (6, 13)
"""The release of Linux from which on."""

HUGE_PAGE_BYTES = 2 << 20
"""Memory is lent from such pages, where the system has them: it then finds out once, and not for every 4 KiB, where
they are, and tells the disk of one piece. 264 KiB take 20 us less."""

_MOUNT = re.compile(r"^\d+ \d+ (?P<device>\d+:\d+) .*? - (?P<type>\S+) ", re.MULTILINE)


def open_uncached(fd: int) -> int:
    """Open a file once more, for writes past the cache; -1 where that is not to be."""
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_DIRECT) if _is_suited(os.fstat(fd).st_dev) else -1
    except (OSError, AttributeError):
        return -1


@cache
def _is_suited(device: int) -> bool:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        return is_suited(mounts.read(), f"{os.major(device)}:{os.minor(device)}")


def is_suited(mounts: str, device: str) -> bool:
    """Say whether a device has one of ``FILE_SYSTEMS``, by the text of ``/proc/self/mountinfo``."""
    types = {found["type"] for found in _MOUNT.finditer(mounts) if found["device"] == device}
    return bool(types) and types <= set(FILE_SYSTEMS)


def is_begun_without_waiting(release: str) -> bool:
    """Say whether a release of Linux begins such a write within the call or leaves it to a worker, and never waits.

    Earlier ones waited for a file system that is frozen, and could for a device that has too much to do."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return found is not None and (int(found[1]), int(found[2])) >= BEGUN_WITHOUT_WAITING


class Lent(NamedTuple):
    """Bytes in an arena."""

    address: int
    size: int
    arena: "Arena"


class Arena:
    """Memory as such writes want it, lent in turn: what was written last is lent again last.

    The device reads what it writes on a processor of its own, and memory that one has just read is slow to write to:
    256 KiB took 110 us in a place used over and over, 62 with 4 MiB between two uses and 18 with 16, wherever that
    processor shares no cache with ours.

    Args:
        size: in bytes; it takes so much memory once all of it was lent."""

    def __init__(self, size: int) -> None:
        memory = mmap.mmap(-1, size + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        begin = -address % HUGE_PAGE_BYTES
        with suppress(OSError, AttributeError):  # The system has no such pages: then it is told of every small one.
            memory.madvise(mmap.MADV_HUGEPAGE)
        self._memory = memoryview(memory)[begin : begin + size]
        self._address = address + begin
        self._size = size
        self._next = self._oldest = 0  # Counted on from turn to turn.
        self._lent = 0

    def lend(self, data: bytes) -> Lent | None:
        """Copy whole blocks into it; ``None`` if there is no room in one piece."""
        begin, left = self._next, self._size - self._next % self._size
        if left < len(data):
            begin += left
        if not self._lent:
            self._oldest = begin
        end = begin + len(data)
        if end - self._oldest > self._size:
            return None
        place = begin % self._size
        self._memory[place : place + len(data)] = data
        self._next = end
        self._lent += 1
        return Lent(self._address + place, len(data), self)

    def give_back(self) -> None:
        """One of those that were lent is over; when all are, all of it is free again."""
        self._lent -= 1
