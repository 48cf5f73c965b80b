"""What can go wrong on the virtual disk on demand: space, failing syncs and reads, power loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias


class PowerLost(BaseException):
    """The disk has no power: this operation did not happen, and none will.

    Not an ``Exception``, so that no handler of errors mistakes a crash for one."""


Hook: TypeAlias = Callable[[str, str], None]
"""Called before every operation that changes the disk, with its name and path; may raise."""


class VirtualDiskFaults:
    """Switches of one virtual disk. Everything is off at first.

    Attributes:
        capacity_bytes: lengths of all files together may not exceed it; ``None`` is unbounded.
        operations: operations that changed something so far, or tried to.
        written_bytes: bytes written so far.
        hook: sees every operation that changes something before it happens.
        on_trusted_again: hears of each write to a file, and each sync, after a sync of it has failed.
        powered: false once power is lost.
    """

    __slots__ = (
        "_bytes_left",
        "_operations_left",
        "_reads",
        "_syncs",
        "capacity_bytes",
        "hook",
        "on_trusted_again",
        "operations",
        "powered",
        "written_bytes",
    )

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.operations = 0
        self.written_bytes = 0
        self.hook: Hook | None = None
        self.on_trusted_again: Hook = _nobody_listens
        self.powered = True
        self._operations_left: int | None = None
        self._bytes_left: int | None = None
        self._syncs: dict[str, int] = {}
        self._reads: dict[str, int] = {}

    def lose_power_after(self, *, operations: int | None = None, written_bytes: int | None = None) -> None:
        """Raise ``PowerLost`` after so many more operations, or in the write of the byte after."""
        self._operations_left = operations
        self._bytes_left = written_bytes

    def fail_syncs(self, path_part: str = "", count: int = 1) -> None:
        """Let the next ``count`` syncs of files whose path contains ``path_part`` fail."""
        self._syncs[path_part] = count

    def fail_reads(self, path_part: str = "", count: int = 1) -> None:
        """Let the next ``count`` reads of files whose path contains ``path_part`` fail."""
        self._reads[path_part] = count

    def heal(self) -> None:
        """Switch everything off that can be switched off again."""
        self.capacity_bytes = None
        self._syncs.clear()
        self._reads.clear()
        self.lose_power_after()

    @property
    def plain(self) -> bool:
        """True while nothing is armed: a synced write needs no way back."""
        return self.hook is None and self._operations_left is None and self._bytes_left is None and not self._syncs

    def check_power(self) -> None:
        """Refuse everything after power was lost."""
        if not self.powered:
            raise PowerLost("the disk has no power")

    def before(self, operation: str, path: str) -> None:
        """Count an operation; lose power here if it is time."""
        self.check_power()
        if self.hook is not None:
            self.hook(operation, path)
        if self._operations_left is not None:
            if self._operations_left == 0:
                self.powered = False
                raise PowerLost(f"power lost before {operation} {path}")
            self._operations_left -= 1
        self.operations += 1

    def writable(self, size: int) -> int:
        """Return how many of ``size`` bytes still get written before power is lost."""
        if self._bytes_left is None or size <= self._bytes_left:
            if self._bytes_left is not None:
                self._bytes_left -= size
            self.written_bytes += size
            return size
        length, self._bytes_left = self._bytes_left, 0
        self.written_bytes += length
        return length

    def sync_fails(self, path: str) -> bool:
        """Say whether this sync is to fail."""
        return _take(self._syncs, path)

    def read_fails(self, path: str) -> bool:
        """Say whether this read is to fail."""
        return _take(self._reads, path)


def _nobody_listens(_operation: str, _path: str) -> None:
    """Until somebody wants to know."""


def _take(armed: dict[str, int], path: str) -> bool:
    for part, count in armed.items():
        if part in path:
            if count == 1:
                del armed[part]
            else:
                armed[part] = count - 1
            return True
    return False
