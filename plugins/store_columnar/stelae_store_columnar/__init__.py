"""The tablet store ``columnar``: recent versions in Arrow, older ones in Parquet blocks."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.hooks import hookimpl
from stelae.spi.store import TabletStore
from stelae_store_columnar.store import ColumnarStore

__all__ = ["ColumnarStore", "stelae_store_engines"]


@hookimpl
def stelae_store_engines() -> Sequence[type[TabletStore]]:
    """Return the engine that this plugin registers."""
    return [ColumnarStore]
