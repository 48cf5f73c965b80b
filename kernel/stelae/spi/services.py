"""The services that the kernel passes to engines, as Protocols.

Engines start no threads, open no sockets and read no clock: they use these services instead. ``Files`` is the only way
to the disk, except for libraries with their own I/O, such as LMDB. So one fake file system with crash semantics can
test every engine.

Ordering and durability of ``Files``
    1. A write is visible to later reads at once. It is durable after a ``sync`` of that file, or on return of
       ``pwritev(..., dsync=True)``.
    2. The creation, renaming and removal of a name is durable after ``sync_directory`` of its directory.
    3. A crash may lose, tear or reorder writes that are not synced.
    4. After ``sync`` has raised an error, nothing that was written to that file since its last successful sync may be
       trusted.

Paths are text with ``/``. Every method may block. Kernel threads call them, never the event loop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview


class File(Protocol):
    """One open file. Threads share it only if its engine serialises the calls.

    Its methods raise ``Full`` if there is no space: the call then had no effect. They raise ``SyncFailed`` if a write
    or a sync failed: the file must not be trusted beyond its last successful sync."""

    @property
    def path(self) -> str:
        """The path under which the file was opened. A rename does not change it."""

    def pread(self, size: int, offset: int) -> bytes:
        """Return ``size`` bytes at ``offset``, or fewer at the end of the file."""

    def pwritev(self, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
        """Write the buffers one after the other, and return the number of bytes.

        With ``dsync`` they are durable on return."""

    def sync(self, *, data_only: bool = False) -> None:
        """Make all writes durable. With ``data_only``, metadata that reads do not need may be skipped."""

    def preallocate(self, size: int) -> None:
        """Reserve space so that the file is at least ``size`` bytes long. New space reads as zeros."""

    def truncate(self, size: int) -> None:
        """Cut or extend the file to ``size`` bytes."""

    def size(self) -> int:
        """Return the length in bytes."""

    def close(self) -> None:
        """Close the file without syncing. Closing twice is harmless."""


class FileLock(Protocol):
    """An exclusive lock on a file, held until released or until the process ends."""

    def release(self) -> None:
        """Release the lock. The file stays."""


class Files(Protocol):
    """A file system, real or fake.

    It raises subclasses of ``OSError`` only for names that are missing or exist already, and ``StorageError`` for
    everything else that fails."""

    def create(self, path: str) -> File:
        """Create a file and open it for writing. Raises ``FileExistsError`` if it exists."""

    def open(self, path: str, *, writable: bool = False) -> File:
        """Open a file. Raises ``FileNotFoundError`` if it does not exist."""

    def exists(self, path: str) -> bool:
        """Return whether a file or directory with that name exists."""

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted. Raises ``FileNotFoundError`` if it does not exist."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents. Harmless if it exists. Not durable on return."""

    def rename(self, source: str, target: str) -> None:
        """Rename atomically. Replaces ``target`` if it is a file. Not durable on return."""

    def remove(self, path: str) -> None:
        """Remove a file. Raises ``FileNotFoundError`` if it does not exist. Not durable on return."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all its contents. Harmless if it does not exist. Not durable on return."""

    def sync_directory(self, path: str) -> None:
        """Make the creation, renaming and removal of names in a directory durable."""

    def read_bytes(self, path: str) -> bytes:
        """Return the contents of a small file. Raises ``FileNotFoundError`` if it does not exist."""

    def replace(self, path: str, data: Buffer) -> None:
        """Replace a small file atomically. Durable on return.

        The steps are: write a temporary file in the same directory, sync it, rename it, sync the directory. After a
        crash or ``SyncFailed`` the file has the old or the new contents; after ``Full`` it has the old ones."""

    def space_left(self, path: str) -> int:
        """Return how many bytes an unprivileged user can still write below ``path``."""

    def lock(self, path: str) -> FileLock:
        """Lock a file. Creates it if it is missing. Raises ``Locked`` if another process holds the lock."""


class Clock(Protocol):
    """The clocks of the machine. Tests simulate them."""

    def monotonic_us(self) -> int:
        """Return microseconds on a clock that never goes back. Only differences have a meaning."""

    def wall_us(self) -> int:
        """Return microseconds since the Unix epoch. They may jump forward and back."""


class Metrics(Protocol):
    """Takes the figures of the kernel and its engines, from any thread. Names are lower case, with their unit last."""

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""

    def gauge(self, name: str, value: float) -> None:
        """Set a gauge."""

    def histogram(self, name: str) -> Callable[[int], None]:
        """Return a function that adds a whole number, at least 0, to a histogram. Get it once and call it often."""


class Workers(Protocol):
    """A bounded thread pool for work that may block or take long."""

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None] | None = None) -> None:
        """Run ``work`` off the event loop, then ``done(result or exception)`` on the loop."""


Part = TypeVar("Part")


class SharedParts:
    """Objects that engines of a node share, one of each class: a cache that all tablets fill, for example.

    They hold nothing that must survive: a node that starts again has none. Any thread may call."""

    def __init__(self) -> None:
        self._parts: dict[type[Any], Any] = {}

    def part(self, kind: type[Part], make: Callable[[], Part]) -> Part:
        """Return the object of class ``kind``, which ``make`` returned once.

        If two threads ask for the first time at once, both call ``make``, and one of the objects is kept."""
        found: Part | None = self._parts.get(kind)
        return self._parts.setdefault(kind, make()) if found is None else found


@dataclass(frozen=True, slots=True)
class EngineServices:
    """The services that an engine gets when it is opened."""

    files: Files
    clock: Clock  #: For metrics and backoff only: nothing durable may depend on it.
    metrics: Metrics
    workers: Workers
    shared: SharedParts = field(default_factory=SharedParts)  #: What the engines of this node have in common.
