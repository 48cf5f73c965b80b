"""Settings of the engine, as they stand in ``[store.lmdb]`` of ``node.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stelae.spi.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LmdbStoreConfig:
    """Sizes of a tablet's map and file, of the transactions of a flush, and when the file is checked."""

    map_bytes: int = setting(
        1 << 36,
        unit="bytes",
        low=1 << 20,
        high=1 << 44,
        reason="address space of one tablet, not disk: reserved at open and never grown while it is open; a thousand "
        "tablets of 64 GiB fit. A file above half of it gets twice its size, at the next start",
    )
    file_step_bytes: int = setting(
        1 << 20,
        unit="bytes",
        low=1 << 16,
        high=1 << 32,
        reason="space of the data file is reserved in such steps, so that a full disk is noticed before a transaction",
    )
    reserve_bytes: int = setting(
        1 << 20,
        unit="bytes",
        low=1 << 16,
        high=1 << 30,
        reason="space that flushes leave to compaction: removing rows copies pages before it frees any",
    )
    readers_max: int = setting(
        126,
        unit="count",
        low=2,
        high=4096,
        reason="slots for reads at one time; more than the kernel's workers are of no use, and one more read waits",
    )
    piece_bytes: int = setting(
        16 << 20,
        unit="bytes",
        low=4096,
        high=1 << 28,
        reason="a flush is cut into transactions of about so much: they bound what is dirty in memory at a time",
    )
    piece_rows: int = setting(
        1024,
        unit="count",
        low=8,
        high=1 << 17,
        reason="the same, in versions, and for compaction, too: a transaction copies up to a page for each, and the "
        "file grows by what it copies before pages that it freed are used again",
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
        reason="a check that takes longer is given up, and says nothing about the file",
    )
