"""What ``stelae bench wal`` measures: sizes of entries, how many under way, and on how many tablets."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

ENGINES = ("segmented", "lmdb", "shared")
"""What is measured unless somebody says otherwise; any installed engine can be."""

CEILING = "crc_queued"
"""What `raw_crc` writes, behind the kernel's writer, measured as if it were an engine: what engines can reach."""

OTHERS = ("raw", "raw_written", "raw_crc", "rocksdb", "sqlite")
"""What they are measured beside."""

INTERVAL_S = 0.1
"""How long a write stays unsynced at most where the mode is "interval"."""

_BODIES = 64


class SyncMode(StrEnum):
    """When what was written is made durable. Nodes have the first only; the others show what it costs."""

    ALWAYS = "always"  #: Every group, before its appends are acknowledged.
    INTERVAL = "interval"  #: Everything written, every ``INTERVAL_S``.
    NEVER = "never"  #: When the operating system likes.


class SyncPace:
    """Says when everything that was written is to be synced. ``now_s`` is monotonic."""

    def __init__(self, mode: SyncMode, now_s: float) -> None:
        self._mode = mode
        self._due_s = now_s + INTERVAL_S

    def due(self, now_s: float) -> bool:
        """Whether to sync now; then the next interval begins."""
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
        entry_bytes: length of each body.
        in_flight: appends under way on each tablet.
        tablets: how many logs are appended to, all at the same time.
        sync: when they are synced.
    """

    entry_bytes: int
    in_flight: int
    tablets: int
    sync: SyncMode = SyncMode.ALWAYS

    @property
    def shown(self) -> tuple[int, int, int, int]:
        """Where it stands among others: by mode and size, then one tablet before many."""
        return list(SyncMode).index(self.sync), self.entry_bytes, self.tablets, self.in_flight

    def __str__(self) -> str:
        size = f"{self.entry_bytes >> 10} KiB" if self.entry_bytes >= 1024 else f"{self.entry_bytes} B"
        tablets = "" if self.tablets == 1 else f" x {self.tablets} tablets"
        mode = "" if self.sync is SyncMode.ALWAYS else f", {self.sync}"
        return f"{size}, {self.in_flight}{tablets}{mode}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WalBenchSettings:
    """What the command line said.

    Attributes:
        seed: draws the bodies and the order within each round.
        rounds: how many rounds.
        seconds: how long each participant is measured in each case of each round.
        quick: the short list of cases, and no reads, restarts and collection.
        restart_bytes: payload of the log that is read, restarted and collected.
        directory: on the disk to be measured; ``None``: where temporary files go.
        engines: names of log engines, in the order in which they are shown.
        fast: engines are written to by the fast preset, ``[log] fast``.
        modes: which modes of syncing; the short list of cases has the first one only.
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
        """The loads, in the order in which they are shown."""
        sizes = (100, 4096) if self.quick else (100, 4096, 102_400)
        one_tablet = (1, 64) if self.quick else (1, 16, 64, 256)
        more = (100,) if self.quick else (100, 1000)
        loads = [(in_flight, 1) for in_flight in one_tablet] + [(1, tablets) for tablets in more]
        modes = self.modes[:1] if self.quick else self.modes
        return [WalCase(size, *load, mode) for mode in modes for size in sizes for load in loads]


class Bodies:
    """Bodies of one size, drawn once, so that drawing them is not part of what is measured."""

    def __init__(self, entry_bytes: int, seed: int) -> None:
        rng = random.Random(f"{seed}/{entry_bytes}")
        self.entry_bytes = entry_bytes
        self._pool = [rng.randbytes(entry_bytes) for _ in range(_BODIES)]
        self._many = list(self._pool)

    def one(self, number: int) -> bytes:
        """Return the body of the entry with that number."""
        return self._pool[number % _BODIES]

    def some(self, count: int) -> Sequence[bytes]:
        """Return so many bodies."""
        while len(self._many) < count:
            self._many += self._pool
        return self._many[:count]
