"""The disks that a loss of power within a write may leave, each different one once.

Running a scenario again for every byte that it writes leaves the same disks. Most of them are equal: a byte that the
file held already, such as a zero in preallocated space, changes nothing. One recorded run gives the different ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stelae.sim.disk import VirtualDisk


def disks_within_writes(disk: VirtualDisk, act: Callable[[], object]) -> Iterator[VirtualDisk]:
    """Let ``act`` change a disk; yield what the disk holds before each write and after each byte of it that differs.

    Each disk is a copy, with every earlier operation of ``act`` and none of the later ones. What a write does to a file
    is not synced. When ``act`` returns, the disk that was passed in has all operations.
    """
    writes: list[tuple[VirtualDisk, dict[str, bytes]]] = []
    before: list[VirtualDisk] = []

    def end_write() -> None:
        if before:
            writes.append((before.pop(), disk.tree()))

    def see(operation: str, _path: str) -> None:
        end_write()
        if operation == "write":
            before.append(disk.clone())

    disk.faults.hook = see
    act()
    disk.faults.hook = None
    end_write()
    last: dict[str, bytes] = {}
    for at_start, after in writes:
        if at_start.tree() != last:
            yield at_start.clone()
        yield from _within(at_start, after)
        last = after


def _within(at_start: VirtualDisk, after: dict[str, bytes]) -> Iterator[VirtualDisk]:
    """Yield the disk after each differing byte of one write."""
    for path, old in at_start.tree().items():
        new = after[path]
        offsets = _offsets_that_differ(old, new)
        for offset in offsets:
            disk = at_start.clone()
            file = disk.open(path, writable=True)
            file.pwritev([new[offsets[0] : offset + 1]], offsets[0])
            file.close()
            yield disk


def _offsets_that_differ(old: bytes, new: bytes) -> list[int]:
    return [offset for offset in range(len(new)) if offset >= len(old) or old[offset] != new[offset]]
