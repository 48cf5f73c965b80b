"""The state of a store at one moment: all that a reader, or a merge, needs to know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stelae.spi.ids import OpId
from stelae.spi.schema import Schema
from stelae_store_columnar.chunks import Chunk
from stelae_store_columnar.fitting import Fitting
from stelae_store_columnar.levels import Levels
from stelae_store_columnar.resolving import ColumnSets, Resolver


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Replaced whole, so that an entry appears at once; nothing in it ever changes."""

    stamp: int  #: The highest timestamp applied.
    applied: OpId
    schema: Schema
    fitting: Fitting
    chunks: tuple[Chunk, ...]
    sets: ColumnSets  #: Of the chunks.
    levels: Levels

    def resolver(self, ids: Iterable[int]) -> Resolver:
        """Return what makes rows of versions with some columns."""
        return Resolver(self.fitting.types(ids), self.fitting, self.sets)
