"""The settings of the engine: the keys of ``[store.lmdb]`` in ``node.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stelae.spi.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LmdbStoreConfig:
    """Sizes of a tablet's map, its file and the transactions of a flush, and when the file is checked."""

    map_bytes: int = setting(
        1 << 36,
        unit="bytes",
        low=1 << 20,
        high=1 << 44,
        reason="address space of one tablet, not disk space. It is reserved at the start and does not grow until the "
        "next one; a thousand tablets of 64 GiB fit. If the file is larger than half of it, the next start reserves "
        "twice the size of the file",
    )
    file_growth_bytes: int = setting(
        1 << 20,
        unit="bytes",
        low=1 << 16,
        high=1 << 32,
        reason="the data file grows in steps of this size, so that a full disk is noticed before a transaction",
    )
    reserve_bytes: int = setting(
        1 << 20,
        unit="bytes",
        low=1 << 16,
        high=1 << 30,
        reason="space that flushes leave for compaction, because removing rows copies pages before it frees any",
    )
    readers_max: int = setting(
        126,
        unit="count",
        low=2,
        high=4096,
        reason="reads at the same time; more than the kernel has workers are not used, and a further read waits",
    )
    transaction_bytes: int = setting(
        16 << 20,
        unit="bytes",
        low=4096,
        high=1 << 28,
        reason="bytes of one transaction of a flush: bounds the dirty pages in memory",
    )
    transaction_rows: int = setting(
        1024,
        unit="count",
        low=8,
        high=1 << 17,
        reason="versions of one transaction of a flush or of compaction: a transaction copies up to a page for each, "
        "and the file grows by these pages before freed ones are used again",
    )
    check: Literal["unclean", "always"] = setting(
        "unclean",
        reason="when a child process reads the whole file before the store opens it: after an unclean stop, or at "
        "every start, which also finds changes that were made while the node was down",
    )
    check_seconds_max: int = setting(
        3600, unit="s", low=1, high=86400, reason="a check that takes longer is stopped, and its result is unknown"
    )
