"""Services that the kernel hands to engines, as Protocols.

Engines start no threads, open no sockets, read no clock: what they need of the outside arrives here. ``Files`` is the
only way to the disk (but for libraries with I/O of their own, as LMDB), so one fake with crash semantics tests all.

Ordering and durability of ``Files``
    A write is visible to later reads at once, and durable only after a ``sync`` of that file (or ``pwritev(...,
    dsync=True)``); creating, renaming and removing names after ``sync_directory`` of the parent. Un-synced writes may
    be lost, torn or reordered by a crash. After ``sync`` raised, nothing written to that file since its last good sync
    may be trusted. Paths are text with ``/``. Every method may block; kernel threads call it, never the event loop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class File(Protocol):
    """One open file, not shared between threads unless its engine serialises the calls. ``Full``: no space, and nothing
    of that call counts. ``SyncFailed``: a write or sync failed, and the file is not to be trusted."""

    @property
    def path(self) -> str:
        """Path under which it was opened (a rename does not change it)."""

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to ``size`` bytes at ``offset``; fewer only at the end of the file."""

    def pwritev(self, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
        """Write all buffers in a row, return the bytes written; ``dsync``: durable on return."""

    def sync(self, *, data_only: bool = False) -> None:
        """Make all writes durable; ``data_only`` may skip metadata that is not needed to read."""

    def preallocate(self, size: int) -> None:
        """Reserve space so that the file is at least ``size`` bytes long, reading as zeros."""

    def truncate(self, size: int) -> None:
        """Cut or extend the file to ``size`` bytes."""

    def size(self) -> int:
        """Length in bytes."""

    def close(self) -> None:
        """Close without syncing. Closing twice is harmless."""


class FileLock(Protocol):
    """An exclusive lock on a file, held until released or until the process ends."""

    def release(self) -> None:
        """Give the lock up; the file stays."""


class Files(Protocol):
    """A file system, real or fake. Raises ``OSError`` subclasses only for missing names."""

    def create(self, path: str) -> File:
        """Create a file that must not exist (``FileExistsError``) and open it for writing."""

    def open(self, path: str, *, writable: bool = False) -> File:
        """Open an existing file (``FileNotFoundError`` otherwise)."""

    def exists(self, path: str) -> bool:
        """Say whether a file or directory of that name exists."""

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted (``FileNotFoundError`` if there is none)."""

    def make_directory(self, path: str) -> None:
        """Create a directory and missing parents; harmless if it exists. Not yet durable."""

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing ``target`` if it is a file. Not yet durable."""

    def remove(self, path: str) -> None:
        """Remove a file (``FileNotFoundError`` if there is none). Not yet durable."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; harmless if there is none. Not yet durable."""

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""

    def read_bytes(self, path: str) -> bytes:
        """Return the contents of a small file (``FileNotFoundError`` if there is none)."""

    def replace(self, path: str, data: Buffer) -> None:
        """Replace a small file atomically: temporary neighbour, sync, rename, directory sync. Durable on return; after
        a crash, or ``SyncFailed``, the old or the new contents stand; after ``Full`` the old."""

    def space_left(self, path: str) -> int:
        """Return the bytes that an unprivileged user can still write below ``path``."""

    def lock(self, path: str) -> FileLock:
        """Lock a file, creating it when missing; ``Locked`` if another process holds it."""


class Clock(Protocol):
    """Time, as the kernel sees it. Simulated in tests."""

    def monotonic_us(self) -> int:
        """Microseconds on a clock that never goes back; only differences mean anything."""

    def wall_us(self) -> int:
        """Microseconds since the Unix epoch; may jump either way."""


class Metrics(Protocol):
    """Where figures go, from any thread. Names are lower case with units last."""

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""

    def gauge(self, name: str, value: float) -> None:
        """Set a gauge."""

    def histogram(self, name: str) -> Callable[[int], None]:
        """Return what adds a whole number, at least 0, to a histogram: to be asked for once and called often."""


class Workers(Protocol):
    """A bounded pool for work that may block or compute long."""

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None] | None = None) -> None:
        """Run ``work`` off the event loop, later ``done(result or exception)`` on the loop."""


class Channel(Protocol):
    """A way to one peer for an engine's own message kinds, used by copy transports."""

    def send(self, kind: str, body: Sequence[Buffer]) -> None:
        """Queue one message, never blocking; dropped if the peer is not connected. ``Overloaded``: no credit left."""


@dataclass(frozen=True, slots=True)
class EngineServices:
    """What an engine is given when opened. The clock is for metrics and back-off: nothing durable may depend on it."""

    files: Files
    clock: Clock
    metrics: Metrics
    workers: Workers
