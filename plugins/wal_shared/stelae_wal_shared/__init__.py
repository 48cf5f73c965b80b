"""Write-ahead log engine ``shared``: one log for the whole node."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.hooks import hookimpl
from stelae.spi.wal import WalEngine
from stelae_wal_shared.config import SharedConfig
from stelae_wal_shared.plain import SharedWal


@hookimpl
def stelae_wal_engines() -> Sequence[type[WalEngine]]:
    """Register the engine."""
    return [SharedWal]


__all__ = ["SharedConfig", "SharedWal", "stelae_wal_engines"]
