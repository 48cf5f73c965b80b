"""Settings of the engine, as they stand in ``[wal.lmdb]`` of ``node.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stelae.spi.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LmdbConfig:
    """Sizes of the map and of the file, and when the file is checked."""

    map_bytes: int = setting(
        1 << 40,
        unit="bytes",
        low=1 << 16,
        high=1 << 46,
        reason="address space, not disk: reserved large, because growing it stops the readers; "
        "halved at open until the system grants it",
    )
    map_bytes_max: int = setting(
        1 << 44,
        unit="bytes",
        low=1 << 16,
        high=1 << 46,
        reason="how far a full map is grown, by doubling, when the kernel repairs a log that was refused for it",
    )
    file_step_bytes: int = setting(
        16 << 20,
        unit="bytes",
        low=1 << 16,
        high=1 << 32,
        reason="space of the data file is reserved in such steps, so that a full disk is noticed before a transaction",
    )
    reserve_bytes: int = setting(
        4 << 20,
        unit="bytes",
        low=1 << 16,
        high=1 << 30,
        reason="space that appends never use: a full disk or map can still be freed by collecting and dropping",
    )
    readers_max: int = setting(
        126,
        unit="count",
        low=2,
        high=4096,
        reason="slots for reads at one time; more than the kernel's read threads is of no use, and one more read waits",
    )
    removed_entries_max: int = setting(
        4096,
        unit="count",
        low=1,
        high=1 << 20,
        reason="entries removed in one transaction: few enough to fit into the reserve",
    )
    check: Literal["unclean", "always"] = setting(
        "unclean",
        reason="when a child process reads the whole file before this one opens it: after an unclean stop, or at "
        "every start, which also catches what changed while the node was down",
    )
    check_seconds_max: int = setting(
        3600,
        unit="s",
        low=1,
        high=86400,
        reason="a check that takes longer is given up, and says nothing about the file; long enough for a terabyte",
    )
