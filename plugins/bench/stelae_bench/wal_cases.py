"""The cases of ``stelae bench wal``: sizes of entries, numbers in flight, and numbers of tablets."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

ENGINES = ("segmented", "lmdb", "shared")
"""The engines that are measured by default. Every installed engine can be."""

CEILING = "crc_queued"
"""The writes of `raw_crc` behind the kernel's writer, measured like an engine. It shows what engines can reach."""

REFERENCES = ("raw", "raw_written", "raw_crc", "rocksdb", "sqlite")
"""The bare loops and databases with which engines are compared."""

INTERVAL_S = 0.1
"""The longest time that a write stays unsynced in the mode "interval"."""

_BODIES = 64


class SyncMode(StrEnum):
    """When writes are synced. Nodes have only the first mode; the others show what it costs."""

    ALWAYS = "always"  #: Each group is synced before its appends are acknowledged.
    INTERVAL = "interval"  #: Everything is synced every ``INTERVAL_S``.
    NEVER = "never"  #: The operating system decides.


class SyncPace:
    """Decides when everything that was written has to be synced. Times are monotonic."""

    def __init__(self, mode: SyncMode, now_s: float) -> None:
        self._mode = mode
        self._due_s = now_s + INTERVAL_S

    def due(self, now_s: float) -> bool:
        """Say whether to sync now. If so, the next interval begins."""
        if self._mode is not SyncMode.INTERVAL:
            return self._mode is SyncMode.ALWAYS
        if now_s < self._due_s:
            return False
        self._due_s = now_s + INTERVAL_S
        return True


@dataclass(frozen=True, slots=True)
class WalCase:
    """One load.

    Attributes:
        entry_bytes: the length of each body.
        in_flight: the number of appends under way on each tablet.
        tablets: the number of logs, which are appended to at the same time.
        sync: when writes are synced.
    """

    entry_bytes: int
    in_flight: int
    tablets: int
    sync: SyncMode = SyncMode.ALWAYS

    @property
    def sort_key(self) -> tuple[int, int, int, int]:
        """The order of cases in reports: by mode and size, then one tablet before many."""
        return list(SyncMode).index(self.sync), self.entry_bytes, self.tablets, self.in_flight

    def __str__(self) -> str:
        size = f"{self.entry_bytes >> 10} KiB" if self.entry_bytes >= 1024 else f"{self.entry_bytes} B"
        tablets = "" if self.tablets == 1 else f" x {self.tablets} tablets"
        mode = "" if self.sync is SyncMode.ALWAYS else f", {self.sync}"
        return f"{size}, {self.in_flight}{tablets}{mode}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WalBenchSettings:
    """The settings of a run, from the command line.

    Attributes:
        seed: of the bodies and of the order within each round.
        rounds: the number of rounds.
        seconds: how long each participant is measured in each case of each round.
        quick: measure the short list of cases, and no reads, restarts and collection.
        restart_bytes: bytes of the bodies of the log that is read, restarted and collected.
        directory: a directory on the disk to measure; ``None``: the one of temporary files.
        engines: the names of log engines, in the order in which they are shown.
        fast: the engines use the fast preset, ``[log] fast``.
        modes: the modes of syncing to measure. The short list of cases has only the first one.
    """

    seed: int
    rounds: int
    seconds: float
    quick: bool
    restart_bytes: int
    directory: Path | None
    engines: tuple[str, ...] = ENGINES
    fast: bool = False
    modes: tuple[SyncMode, ...] = tuple(SyncMode)

    @property
    def cases(self) -> list[WalCase]:
        """The cases, in the order in which they are shown."""
        sizes = (100, 4096) if self.quick else (100, 4096, 102_400)
        one_tablet = (1, 64) if self.quick else (1, 16, 64, 256)
        more = (100,) if self.quick else (100, 1000)
        loads = [(in_flight, 1) for in_flight in one_tablet] + [(1, tablets) for tablets in more]
        modes = self.modes[:1] if self.quick else self.modes
        return [WalCase(size, *load, mode) for mode in modes for size in sizes for load in loads]


class Bodies:
    """Bodies of one size. They are drawn once, so that the time of drawing is not measured."""

    def __init__(self, entry_bytes: int, seed: int) -> None:
        rng = random.Random(f"{seed}/{entry_bytes}")
        self.entry_bytes = entry_bytes
        self._pool = [rng.randbytes(entry_bytes) for _ in range(_BODIES)]
        self._many = list(self._pool)

    def one(self, number: int) -> bytes:
        """Return the body of the entry with that number."""
        return self._pool[number % _BODIES]

    def some(self, count: int) -> Sequence[bytes]:
        """Return ``count`` bodies."""
        while len(self._many) < count:
            self._many += self._pool
        return self._many[:count]
