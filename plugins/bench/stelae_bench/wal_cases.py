"""What ``stelae bench wal`` measures: sizes of entries, how many under way, and on how many tablets."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ENGINES = ("segmented", "lmdb", "shared")
"""What is measured unless somebody says otherwise; any installed engine can be."""

OTHERS = ("raw", "raw_crc", "rocksdb", "sqlite")
"""What they are measured beside."""

SYNC = "always"
"""The one mode that the log writer has: every group is synced."""

_BODIES = 64


@dataclass(frozen=True, slots=True)
class Case:
    """One load.

    Attributes:
        entry_bytes: length of each body.
        in_flight: appends under way on each tablet.
        tablets: how many logs are appended to, all at the same time.
    """

    entry_bytes: int
    in_flight: int
    tablets: int

    @property
    def shown(self) -> tuple[int, int, int]:
        """Where it stands among others: by size, then one tablet before many."""
        return self.entry_bytes, self.tablets, self.in_flight

    def __str__(self) -> str:
        size = f"{self.entry_bytes >> 10} KiB" if self.entry_bytes >= 1024 else f"{self.entry_bytes} B"
        tablets = "" if self.tablets == 1 else f" x {self.tablets} tablets"
        return f"{size}, {self.in_flight}{tablets}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line said.

    Attributes:
        seed: draws the bodies and the order within each round.
        rounds: how many rounds.
        seconds: how long each participant is measured in each case of each round.
        quick: the short list of cases, and no reads, restarts and collection.
        restart_bytes: payload of the log that is read, restarted and collected.
        directory: on the disk to be measured; ``None``: where temporary files go.
        engines: names of log engines, in the order in which they are shown.
    """

    seed: int
    rounds: int
    seconds: float
    quick: bool
    restart_bytes: int
    directory: Path | None
    engines: tuple[str, ...] = ENGINES

    @property
    def cases(self) -> list[Case]:
        """The loads, in the order in which they are shown."""
        sizes = (100, 4096) if self.quick else (100, 4096, 102_400)
        one_tablet = (1, 64) if self.quick else (1, 16, 64, 256)
        more = (100,) if self.quick else (100, 1000)
        loads = [(in_flight, 1) for in_flight in one_tablet] + [(1, tablets) for tablets in more]
        return [Case(size, in_flight, tablets) for size in sizes for in_flight, tablets in loads]


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
