"""The faults of a virtual disk: limited space, failing syncs and reads, power loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias


class PowerLost(BaseException):
    """The disk has no power: this operation did not happen, and no later one will.

    It is not an ``Exception``, so that no error handler catches a crash."""


Hook: TypeAlias = Callable[[str, str], None]
"""Called with the name of an operation and the path of its file. May raise."""


class VirtualDiskFaults:
    """The fault settings of one virtual disk. At first no fault is set.

    Attributes:
        capacity_bytes: limit for the sum of all file lengths; ``None`` for no limit.
        operations: number of operations so far that changed something or tried to.
        written_bytes: number of bytes written so far.
        full_in: writes to files whose path begins so find no space, although the files have it, as on a disk that
            copies on write or promises more than it has; ``None`` for none.
        hook: called before every operation that changes something.
        on_use_after_failed_sync: called for each write and each sync of a file of which a sync has failed.
        powered: false once power is lost.
    """

    __slots__ = (
        "_bytes_left",
        "_counted",
        "_operations_left",
        "_reads",
        "_syncs",
        "capacity_bytes",
        "full_in",
        "hook",
        "on_use_after_failed_sync",
        "operations",
        "powered",
        "written_bytes",
    )

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.full_in: str | None = None
        self.operations = 0
        self.written_bytes = 0
        self.hook: Hook | None = None
        self.on_use_after_failed_sync: Hook = _no_listener
        self.powered = True
        self._operations_left: int | None = None
        self._counted = ""
        self._bytes_left: int | None = None
        self._syncs: dict[str, int] = {}
        self._reads: dict[str, int] = {}

    def lose_power_after(
        self, *, operations: int | None = None, written_bytes: int | None = None, counted: str = ""
    ) -> None:
        """Raise ``PowerLost`` after the given number of further operations, or of further written bytes.

        Operations count if their name begins with ``counted``."""
        self._operations_left = operations
        self._counted = counted
        self._bytes_left = written_bytes

    def fail_syncs(self, path_part: str = "", count: int = 1) -> None:
        """Let the next ``count`` syncs of files whose path contains ``path_part`` fail."""
        self._syncs[path_part] = count

    def fail_reads(self, path_part: str = "", count: int = 1) -> None:
        """Let the next ``count`` reads of files whose path contains ``path_part`` fail."""
        self._reads[path_part] = count

    def heal(self) -> None:
        """End every fault except a power loss that has happened."""
        self.capacity_bytes = self.full_in = None
        self._syncs.clear()
        self._reads.clear()
        self.lose_power_after()

    @property
    def is_full(self) -> bool:
        """True while writes may find no space."""
        return self.capacity_bytes is not None or self.full_in is not None

    @property
    def none_set(self) -> bool:
        """True while no fault of a write or sync is set, so that a synced write needs no undo data."""
        return self.hook is None and self._operations_left is None and self._bytes_left is None and not self._syncs

    def check_power(self) -> None:
        """Raise ``PowerLost`` if power was lost."""
        if not self.powered:
            raise PowerLost("the disk has no power")

    def before(self, operation: str, path: str) -> None:
        """Count an operation that is about to happen, and lose power here if that is set."""
        self.check_power()
        if self.hook is not None:
            self.hook(operation, path)
        if self._operations_left is not None and operation.startswith(self._counted):
            if self._operations_left == 0:
                self.powered = False
                raise PowerLost(f"power lost before {operation} {path}")
            self._operations_left -= 1
        self.operations += 1

    def writable(self, size: int) -> int:
        """Return how many of ``size`` bytes are written before power is lost."""
        if self._bytes_left is None or size <= self._bytes_left:
            if self._bytes_left is not None:
                self._bytes_left -= size
            self.written_bytes += size
            return size
        length, self._bytes_left = self._bytes_left, 0
        self.written_bytes += length
        return length

    def sync_fails(self, path: str) -> bool:
        """Return true if this sync must fail."""
        return _take(self._syncs, path)

    def read_fails(self, path: str) -> bool:
        """Return true if this read must fail."""
        return _take(self._reads, path)


def _no_listener(_operation: str, _path: str) -> None:
    """Do nothing: no observer is set."""


def _take(armed: dict[str, int], path: str) -> bool:
    for part, count in armed.items():
        if part in path:
            if count == 1:
                del armed[part]
            else:
                armed[part] = count - 1
            return True
    return False
