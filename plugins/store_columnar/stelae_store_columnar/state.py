"""The state of a store at one moment: what a reader or a merge needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stelae.spi.ids import OpId
from stelae.spi.schema import Schema
from stelae_store_columnar.levels import Levels
from stelae_store_columnar.memory_chunks import MemoryChunk
from stelae_store_columnar.schema_adapter import SchemaAdapter
from stelae_store_columnar.version_resolver import ColumnSets, VersionResolver


@dataclass(frozen=True, slots=True, eq=False)
class ColumnarState:
    """An immutable state. Each group of entries replaces it as a whole, so that its rows become visible together."""

    stamp: int  #: The highest timestamp applied.
    applied: OpId  #: The last entry applied.
    schema: Schema
    adapter: SchemaAdapter
    chunks: tuple[MemoryChunk, ...]
    sets: ColumnSets  #: The column sets of the partial versions in ``chunks``.
    levels: Levels

    def resolver(self, ids: Iterable[int]) -> VersionResolver:
        """Return the resolver for some columns."""
        return VersionResolver(self.adapter.types(ids), self.adapter, self.sets)
