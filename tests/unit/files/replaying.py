"""Replaying ``RealFiles`` on a simulated system: power is lost before every call, and every sync fails in turn.

A *step* is what a caller does to have something durable, its syncs included. Once it returned, what it promised must
survive any crash; until then each file is as it was or as it will be. A step during which a sync failed must raise."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stelae.machine.files import RealFiles
from stelae.sim.disk import PowerLost, Survival, VirtualDisk
from stelae.spi.errors import SyncFailed
from stelae.spi.services import Buffer
from stelae.testing.disk_calls import DiskCalls

Tree: TypeAlias = dict[str, bytes]

CRASHES = 12
"""How many crashes are drawn at each place, beside the one that loses all that was not synced."""


class NoDsync(DiskCalls):
    """A system that has no synchronous writes."""

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int, flags: int = 0, /) -> int:
        """Refuse the flag."""
        if flags:
            raise OSError(errno.EOPNOTSUPP, "no such flag")
        return super().pwritev(fd, buffers, offset)


class ShortWrites(DiskCalls):
    """A system that writes at most five bytes with one call."""

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int, flags: int = 0, /) -> int:
        """Write the first five."""
        return super().pwritev(fd, [b"".join(buffers)[:5]], offset, flags)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is durable when it returns.

    Attributes:
        do: does it.
        after: every file afterwards, by its path.
        atomic: a crash within it leaves each file as it was or as it will be; else its files may be torn.
    """

    do: Callable[[RealFiles], None]
    after: Tree
    atomic: bool = True


def check_every_crash(steps: Sequence[Step], system: type[DiskCalls] = DiskCalls) -> int:
    """Lose power before each call of the steps, and after the last; return how many calls there are."""
    count = 0
    while True:
        for seed in range(CRASHES + 1):
            disk = VirtualDisk()
            disk.faults.lose_power_after(operations=count)
            done, lost, begun = _run(steps, disk, system)
            after = disk.crash(random.Random(seed), Survival.DRAWN if seed else Survival.LOST)
            _judge(steps, done, under_way=begun, found=_files(after))
        if not lost:
            return count
        count += 1


def check_every_failed_sync(steps: Sequence[Step], system: type[DiskCalls] = DiskCalls) -> int:
    """Let each sync fail, once; the step that needed it must raise. Return how many syncs there are."""
    count = 0
    while True:
        disk = VirtualDisk()
        seen = _fail_sync(disk, count)
        failed = False
        try:
            done, _, _ = _run(steps, disk, system)
        except StepFailed as raised:
            done, failed = raised.done, True
        if len(seen) <= count:
            return count
        assert failed, f"sync {count + 1} failed, of {seen[count]}, and no step raised"
        disk.faults.hook = None
        _judge(steps, done, under_way=True, found=_files(disk.crash(random.Random(1), Survival.LOST)))
        count += 1


class StepFailed(Exception):
    """A step raised ``SyncFailed``; ``done`` steps had returned."""

    def __init__(self, done: int) -> None:
        super().__init__(done)
        self.done = done


def _run(steps: Sequence[Step], disk: VirtualDisk, system: type[DiskCalls]) -> tuple[int, bool, bool]:
    """Return how many steps returned, whether power was lost in the next one, and whether that had changed anything."""
    files = RealFiles(system(disk))
    for done, step in enumerate(steps):
        before = disk.faults.operations
        try:
            step.do(files)
        except PowerLost:
            return done, True, disk.faults.operations > before
        except SyncFailed as error:
            raise StepFailed(done) from error
    return len(steps), False, False


def _fail_sync(disk: VirtualDisk, number: int) -> list[str]:
    """Let the sync of that number fail; return the list of paths that will be synced."""
    seen: list[str] = []

    def before(operation: str, path: str) -> None:
        if "sync" in operation:
            seen.append(path)
            if len(seen) == number + 1:
                disk.faults.fail_syncs(path)

    disk.faults.hook = before
    return seen


def _judge(steps: Sequence[Step], done: int, *, under_way: bool, found: Tree) -> None:
    before = steps[done - 1].after if done else {}
    coming = steps[done] if under_way and done < len(steps) else None
    for path in {*before, *found, *(coming.after if coming is not None else {})}:
        allowed = {before.get(path)}
        if coming is not None:
            if not coming.atomic and coming.after.get(path) != before.get(path):
                continue
            allowed.add(coming.after.get(path))
        assert found.get(path) in allowed, f"after {done} steps {path} holds {found.get(path)!r}, not one of {allowed}"


def _files(disk: VirtualDisk) -> Tree:
    """What is found after a crash, without the neighbours that ``replace`` writes first."""
    return {path: data for path, data in disk.tree().items() if not path.endswith(".tmp")}
