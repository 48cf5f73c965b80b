"""Settings of the engine: ``[wal.segmented]`` in ``node.toml``."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.spi.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentedConfig:
    """Sizes of segments, and how many files are synced in parallel."""

    segment_bytes_first: int = setting(
        1 << 20,
        unit="bytes",
        low=4096,
        high=1 << 30,
        reason="small, so that a node with many idle tablets reserves little space for each",
    )
    segment_bytes_max: int = setting(
        64 << 20,
        unit="bytes",
        low=4096,
        high=1 << 32,
        reason="large enough that rolling is rare, small enough that collection frees space soon",
    )
    segment_growth: int = setting(
        4,
        unit="count",
        low=1,
        high=64,
        reason="each new segment is this many times as long as the one before it, up to the maximum",
    )
    prewrite_bytes_min: int = setting(
        16 << 20,
        unit="bytes",
        low=4096,
        high=1 << 40,
        reason="a segment of at least this length is written with zeros before it is used: a commit to it takes about "
        "half the time, but each byte is written twice. A value above segment_bytes_max turns this off, which suits "
        "file systems that copy on write",
    )
    sync_threads_max: int = setting(
        8,
        unit="count",
        low=1,
        high=64,
        reason="files of one group that are synced in parallel, on the log's own thread and on idle background "
        "threads; a value above the number of writes that the disk takes at once gains nothing",
    )

    def segment_bytes(self, rolls: int) -> int:
        """Return the length at which a segment is full, after ``rolls`` rolls since the log was warmed up."""
        size = self.segment_bytes_first
        for _ in range(min(rolls, 64)):
            size = min(size * self.segment_growth, self.segment_bytes_max)
        return max(size, self.segment_bytes_first)

    def prewritten(self, segment_bytes: int) -> bool:
        """Say whether a segment of that length is written with zeros before it is used."""
        return segment_bytes >= self.prewrite_bytes_min
