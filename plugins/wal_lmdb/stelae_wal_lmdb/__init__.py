"""Write-ahead log engine ``lmdb``: one environment for all logs of a node."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.hooks import hookimpl
from stelae.spi.wal import WalEngine
from stelae_wal_lmdb.config import LmdbConfig
from stelae_wal_lmdb.engine import LmdbWal


@hookimpl
def stelae_wal_engines() -> Sequence[type[WalEngine]]:
    """Register the engine."""
    return [LmdbWal]


__all__ = ["LmdbConfig", "LmdbWal", "stelae_wal_engines"]
