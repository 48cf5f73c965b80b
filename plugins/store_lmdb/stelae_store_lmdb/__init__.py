"""The tablet store ``lmdb``: recent versions in memory, older ones row by row in one LMDB environment."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.hooks import hookimpl
from stelae.spi.store import TabletStore
from stelae_store_lmdb.store import LmdbStore

__all__ = ["LmdbStore", "stelae_store_engines"]


@hookimpl
def stelae_store_engines() -> Sequence[type[TabletStore]]:
    """Return the engine that this plugin registers."""
    return [LmdbStore]
