"""Settings of the engine, as they stand in ``[wal.shared]`` of ``node.toml``."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.spi.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedConfig:
    """Sizes of segments, and how much may be written again to free sparse ones."""

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
        reason="large, so that what every segment repeats of all logs weighs little beside the entries",
    )
    segment_growth: int = setting(
        4,
        unit="count",
        low=1,
        high=64,
        reason="each segment of a run is so many times the one before, up to the maximum",
    )
    prewrite_bytes_min: int = setting(
        16 << 20,
        unit="bytes",
        low=4096,
        high=1 << 40,
        reason="a segment of so much or more is written with zeros before it is used: a commit there takes about half "
        "the time, and each byte is written twice. Above segment_bytes_max it is off, as for file systems that copy "
        "on write",
    )
    live_percent_max: int = setting(
        25,
        unit="percent",
        low=0,
        high=90,
        reason="a segment with no larger share of live entries is emptied; at 25 a byte is written 1.33 times at most",
    )
    move_percent_max: int = setting(
        50,
        unit="percent",
        low=0,
        high=1000,
        reason="bytes moved since the start, in relation to those appended: collection never takes the disk for itself",
    )
    move_bytes_max: int = setting(
        8 << 20, unit="bytes", low=4096, high=1 << 30, reason="moved in one call at most: commits wait meanwhile"
    )
    indexes_max: int = setting(
        16,
        unit="count",
        low=1,
        high=65536,
        reason="indexes of closed segments kept in memory for readers; 12 bytes an entry",
    )

    def segment_bytes(self, rolls: int) -> int:
        """Length at which a segment is full, after so many rolls since the start."""
        size = self.segment_bytes_first
        for _ in range(min(rolls, 64)):
            size = min(size * self.segment_growth, self.segment_bytes_max)
        return max(size, self.segment_bytes_first)

    def prewritten(self, segment_bytes: int) -> bool:
        """Say whether a segment of that length is written with zeros before it is used."""
        return segment_bytes >= self.prewrite_bytes_min
