"""Settings of the engine: ``[wal.lmdb]`` in ``node.toml``."""

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
        reason="address space and not space on the disk: large, because readers wait while it grows; halved at open "
        "until the system grants it",
    )
    map_bytes_max: int = setting(
        1 << 44,
        unit="bytes",
        low=1 << 16,
        high=1 << 46,
        reason="largest map: a full map is doubled up to this size when the kernel repairs a log that found no space",
    )
    file_growth_bytes: int = setting(
        16 << 20,
        unit="bytes",
        low=1 << 16,
        high=1 << 32,
        reason="the data file is extended in steps of this size, so that a full disk is noticed before a transaction",
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
        reason="reads at one time, further reads wait; more than the kernel's read threads gains nothing",
    )
    removed_entries_max: int = setting(
        4096,
        unit="count",
        low=1,
        high=1 << 20,
        reason="entries removed in one transaction; few enough to fit into the reserve",
    )
    check: Literal["unclean", "always"] = setting(
        "unclean",
        reason="when a child process checks the complete file before it is opened: after an unclean stop, or at every "
        "start, which also finds changes that were made while the node was down",
    )
    check_seconds_max: int = setting(
        3600,
        unit="s",
        low=1,
        high=86400,
        reason="a check that takes longer is given up without a result; long enough for a terabyte",
    )
