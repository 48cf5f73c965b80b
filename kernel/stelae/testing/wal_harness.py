"""The harnesses of the log engines' conformance suite: services, and a disk that can crash.

A harness opens one engine again and again on one disk. ``VirtualHarness`` crashes it with lost and torn writes.
``RealHarness`` runs on a directory of the machine. There a crash is the death of the process: everything that was
written stays, synced or not.
"""

from __future__ import annotations

import copy
import random
import shutil
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from stelae.machine.files import RealFiles
from stelae.sim.disk import PowerLost, Survival, VirtualDisk
from stelae.spi.errors import StelaeError
from stelae.spi.services import EngineServices, Files
from stelae.spi.wal import WalEngine


class StillClock:
    """A clock that always shows the same time. Engines may not depend on it."""

    def monotonic_us(self) -> int:
        """Always zero."""
        return 0

    def wall_us(self) -> int:
        """Always the same instant."""
        return 1_700_000_000_000_000


@dataclass
class CountingMetrics:
    """Records metrics for tests."""

    counts: dict[str, float] = field(default_factory=dict)

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        self.counts[name] = self.counts.get(name, 0) + amount

    def gauge(self, name: str, value: float) -> None:
        """Set a gauge."""
        self.counts[name] = value

    def histogram(self, name: str) -> Callable[[int], None]:
        """Record the sum of the observed values as a counter."""
        return lambda value: self.count(name, value)


class QueuedWorkers:
    """Workers that run on the caller's thread, one after the other: at ``run``, or at once with ``at_once``."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.at_once = at_once
        self._queue: deque[tuple[Callable[[], Any], Callable[[Any], None] | None]] = deque()

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None] | None = None) -> None:
        """Queue a piece of work; with ``at_once``, run it now."""
        self._queue.append((work, done))
        if self.at_once:
            self.run()

    def run(self) -> int:
        """Run the queued work; return how many pieces ran."""
        count = 0
        while self._queue:
            work, done = self._queue.popleft()
            try:
                result = work()
            except (StelaeError, OSError) as error:
                result = error
            if done is not None:
                done(result)
            count += 1
        return count


def fake_services(files: Files, workers: QueuedWorkers | None = None) -> EngineServices:
    """Return ``EngineServices`` for tests. Without ``workers``, work runs at once."""
    return EngineServices(files, StillClock(), CountingMetrics(), workers or QueuedWorkers())


class WalHarness(ABC):
    """Opens one engine on one disk, any number of times.

    Args:
        engine_type: the engine under test.
        config: its settings; its defaults if ``None``.
    """

    virtual: bool

    def __init__(self, engine_type: type[WalEngine], config: object | None = None) -> None:
        self.engine_type = engine_type
        self.config = engine_type.Config() if config is None else config
        self.workers = QueuedWorkers()

    @property
    @abstractmethod
    def files(self) -> Files:
        """The disk in its current state."""

    @property
    @abstractmethod
    def directory(self) -> str:
        """The directory that the engine owns."""

    def open(self, files: Files | None = None) -> WalEngine:
        """Open the engine on the current disk, through ``files`` if given."""
        self.workers = QueuedWorkers(at_once=self.workers.at_once)
        services = fake_services(self.files if files is None else files, self.workers)
        return self.engine_type.open(self.directory, self.config, services)

    @abstractmethod
    def crash(self, engine: WalEngine | None = None) -> None:
        """End the engine without closing it. What remains of unsynced changes depends on the disk."""

    @abstractmethod
    def fork(self, seed: int = 0) -> Self:
        """Return an independent harness on a copy of the current disk. Crashes of a virtual disk draw from ``seed``."""

    @abstractmethod
    def tree(self) -> dict[str, bytes]:
        """Return the contents of every file of the engine by path, in order."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Replace a file's contents durably, without the engine."""


class VirtualHarness(WalHarness):
    """A harness on a virtual disk. Crashes draw from ``rng``."""

    virtual = True

    def __init__(
        self,
        engine_type: type[WalEngine],
        config: object | None = None,
        *,
        seed: int = 1,
        disk: VirtualDisk | None = None,
    ) -> None:
        super().__init__(engine_type, config)
        self.rng = random.Random(seed)
        if disk is None:
            disk = VirtualDisk()
            disk.make_directory("/node")
            disk.sync_directory("/")
        self.disk = disk

    @property
    def files(self) -> VirtualDisk:
        """The virtual disk."""
        return self.disk

    @property
    def directory(self) -> str:
        """A directory of the virtual disk."""
        return "/node/wals"

    def crash(self, engine: WalEngine | None = None, survival: Survival = Survival.DRAWN) -> None:
        """Lose power."""
        self.disk = self.disk.crash(self.rng, survival)

    def fork(self, seed: int = 0) -> Self:
        """Return an independent harness on a copy of the disk."""
        return self.on(self.disk.clone(), seed)

    def on(self, disk: VirtualDisk, seed: int) -> Self:
        """Return a harness like this one on another disk. Its crashes draw from ``seed``."""
        twin = type(self)(self.engine_type, self.config, seed=seed, disk=disk)
        twin.workers.at_once = self.workers.at_once
        return twin

    def tree(self) -> dict[str, bytes]:
        """Return the files below the engine's directory."""
        inside = f"{self.directory}/"
        return {path: data for path, data in self.disk.tree().items() if path.startswith(inside)}

    def write(self, path: str, data: bytes) -> None:
        """Replace a file's contents."""
        if self.disk.exists(path):
            self.disk.cut(path, 0)
            file = self.disk.open(path, writable=True)
        else:
            file = self.disk.create(path)
        file.pwritev([data], 0)
        file.sync()
        file.close()


class RealHarness(WalHarness):
    """A harness on a directory of the machine's file system. ``crash`` copies the directory."""

    virtual = False

    def __init__(self, engine_type: type[WalEngine], root: str, config: object | None = None) -> None:
        super().__init__(engine_type, config)
        self._root = root
        self._crashes = 0
        self._forks = 0
        self._files = RealFiles()
        self._files.make_directory(f"{root}/0")

    @property
    def files(self) -> RealFiles:
        """The machine's disk."""
        return self._files

    @property
    def directory(self) -> str:
        """A directory below the root. Every crash moves on to another one."""
        return f"{self._root}/{self._crashes}/wals"

    def crash(self, engine: WalEngine | None = None) -> None:
        """Go on with a copy of the directory. The engine stays open on the old one."""
        before = f"{self._root}/{self._crashes}"
        self._crashes += 1
        shutil.copytree(before, f"{self._root}/{self._crashes}")

    def fork(self, seed: int = 0) -> Self:
        """Return an independent harness on a copy of the directory, below the same root."""
        twin = copy.copy(self)
        twin._root, twin._crashes, twin._forks = f"{self._root}/fork-{self._forks}", 0, 0
        self._forks += 1
        shutil.copytree(f"{self._root}/{self._crashes}", f"{twin._root}/0")
        return twin

    def tree(self) -> dict[str, bytes]:
        """Return the files below the engine's directory."""
        found: dict[str, bytes] = {}
        self._collect(self.directory, found)
        return found

    def write(self, path: str, data: bytes) -> None:
        """Replace a file's contents."""
        self._files.replace(path, data)

    def _collect(self, directory: str, found: dict[str, bytes]) -> None:
        for name in self._files.listdir(directory):
            path = f"{directory}/{name}"
            try:
                found[path] = self._files.read_bytes(path)
            except IsADirectoryError:
                self._collect(path, found)


__all__ = [
    "CountingMetrics",
    "PowerLost",
    "QueuedWorkers",
    "RealHarness",
    "StillClock",
    "Survival",
    "VirtualDisk",
    "VirtualHarness",
    "WalHarness",
    "fake_services",
]
