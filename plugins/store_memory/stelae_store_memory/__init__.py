"""The tablet store ``memory``: rows in memory with their history, rebuilt from the log at start."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.hooks import hookimpl
from stelae.spi.store import TabletStore
from stelae_store_memory.store import MemoryStore

__all__ = ["MemoryStore", "stelae_store_engines"]


@hookimpl
def stelae_store_engines() -> Sequence[type[TabletStore]]:
    """Return the engine that this plugin registers."""
    return [MemoryStore]
