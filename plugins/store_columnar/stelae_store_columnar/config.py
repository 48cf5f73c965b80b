"""The settings of the engine: the keys of ``[store.columnar]`` in ``node.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stelae.spi.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnarConfig:
    """Sizes of row groups and blocks, when blocks are merged, and the size of the cache."""

    row_group_rows: int = setting(
        8192,
        unit="count",
        low=64,
        high=1 << 20,
        reason="a point read decodes a whole row group, a scan several at once: twice as many rows make a scan "
        "5 % faster and a point read half as fast",
    )
    block_rows_max: int = setting(
        1 << 20, unit="count", low=64, high=1 << 24, reason="a merge replaces whole blocks, so they must be small"
    )
    block_bytes_max: int = setting(
        128 << 20, unit="bytes", low=4096, high=1 << 31, reason="a block is encoded in memory before it is written"
    )
    compression: Literal["none", "snappy", "lz4", "zstd"] = setting(
        "lz4", reason="as small as snappy, and read in two thirds of the time, nearly as fast as none"
    )
    level0_blocks_min: int = setting(
        4, unit="count", low=1, high=1000, reason="with this many overlapping flushed blocks a merge begins"
    )
    level0_blocks_max: int = setting(
        12,
        unit="count",
        low=2,
        high=10_000,
        reason="with more overlapping flushed blocks, a flush merges, too: a read looks into each of them",
    )
    merge_step_rows: int = setting(
        262_144, unit="count", low=64, high=1 << 24, reason="rows of one step of a merge; entries wait for it"
    )
    garbage_percent_max: int = setting(
        20, unit="percent", low=1, high=100, reason="a block with more rows below the history floor is rewritten"
    )
    key_history_bytes_max: int = setting(
        256 << 20,
        unit="bytes",
        low=32 << 20,
        high=512 << 20,
        reason="versions of one key; with more, the history of the tablet is shortened: they are read as a whole",
    )
    cache_bytes: int = setting(
        256 << 20,
        unit="bytes",
        low=0,
        high=1 << 40,
        reason="decoded columns that are kept for point reads and updates, for all tablets of the node together; the "
        "read of one row decodes a whole row group if it is not kept, which takes a millisecond",
    )
