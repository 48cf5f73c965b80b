"""Write-ahead log engine ``segmented``: one directory of segments per tablet."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.hooks import hookimpl
from stelae.spi.wal import WalEngine
from stelae_wal_segmented.config import SegmentedConfig
from stelae_wal_segmented.plain import SegmentedWal


@hookimpl
def stelae_wal_engines() -> Sequence[type[WalEngine]]:
    """Register the engine."""
    return [SegmentedWal]


__all__ = ["SegmentedConfig", "SegmentedWal", "stelae_wal_engines"]
