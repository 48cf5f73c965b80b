"""Settings of the engine: ``[wal.shared]`` in ``node.toml``."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.spi.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedConfig:
    """Sizes of segments, and how much may be written again to free sparse segments."""

    segment_bytes_first: int = setting(
        4 << 20,
        unit="bytes",
        low=4096,
        high=1 << 30,
        reason="the first segment after a start: small, so that a quiet node reserves little",
    )
    segment_bytes_max: int = setting(
        64 << 20,
        unit="bytes",
        low=4096,
        high=1 << 32,
        reason="large, so that the image of all logs, which every segment begins with, is small beside the entries",
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
    live_percent_max: int = setting(
        25,
        unit="percent",
        low=0,
        high=90,
        reason="a closed segment with at most this share of live entries is emptied; at 25, a byte is written 1.33 "
        "times at most",
    )
    move_percent_max: int = setting(
        50,
        unit="percent",
        low=0,
        high=1000,
        reason="bytes moved since the start, as a share of the bytes appended, so that collection leaves the disk to "
        "appends",
    )
    move_bytes_max: int = setting(
        8 << 20,
        unit="bytes",
        low=4096,
        high=1 << 30,
        reason="bytes that one call moves at most, because commits wait for it",
    )
    indexes_max: int = setting(
        16,
        unit="count",
        low=1,
        high=65536,
        reason="indexes of closed segments that stay in memory for readers; 12 bytes for each entry",
    )

    def segment_bytes(self, rolls: int) -> int:
        """Return the length at which a segment is full, after ``rolls`` rolls since the start."""
        size = self.segment_bytes_first
        for _ in range(min(rolls, 64)):
            size = min(size * self.segment_growth, self.segment_bytes_max)
        return max(size, self.segment_bytes_first)

    def prewritten(self, segment_bytes: int) -> bool:
        """Say whether a segment of that length is written with zeros before it is used."""
        return segment_bytes >= self.prewrite_bytes_min
