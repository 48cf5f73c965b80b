"""Collects the rows that a lookup finds: as plain rows for few keys, and as one Arrow batch for many.

Arrow takes many rows of a source in one call for each, which costs a fraction of their plain values. It needs some
tens of microseconds for a call, and so is slower for few rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from stelae.spi.store import FoundBatch, FoundRows
from stelae_store_columnar.plain_rows import PlainRows, Row
from stelae_store_columnar.schema_adapter import SchemaAdapter

TAKE_MIN = 8
"""Fewer rows of a source become plain values first: a call of Arrow takes as long as their values."""


class FoundKeys(ABC):
    """The rows of the keys of one lookup, by the positions of the keys. Each key has at most one row."""

    @abstractmethod
    def put(self, position: int, row: Row | None) -> None:
        """Add the row of a key; ``None``: it has none."""

    @abstractmethod
    def take(self, rows: PlainRows, places: Sequence[int], positions: Sequence[int]) -> None:
        """Add rows of a source with all columns of their schema versions: those of the keys at some positions."""

    @abstractmethod
    def result(self, unread: Sequence[int]) -> FoundRows | FoundBatch:
        """Return what was found. Called once."""


class FewKeys(FoundKeys):
    """Plain rows."""

    def __init__(self, schema: Schema, adapter: SchemaAdapter, count: int) -> None:
        self._schema, self._adapter = schema, adapter
        self._rows: list[Row | None] = [None] * count

    def put(self, position: int, row: Row | None) -> None:
        self._rows[position] = row

    def take(self, rows: PlainRows, places: Sequence[int], positions: Sequence[int]) -> None:
        found = rows.rows(places, self._adapter, self._schema.layout)
        for position, row in zip(positions, found, strict=True):
            self._rows[position] = row

    def result(self, unread: Sequence[int]) -> FoundRows:
        return FoundRows(self._schema, self._rows, unread)


class ManyKeys(FoundKeys):
    """One batch: the rows that Arrow took from each source, and behind them those that were put together."""

    def __init__(self, schema: Schema, adapter: SchemaAdapter, count: int) -> None:
        self._schema, self._adapter = schema, adapter
        self._ids = frozenset(schema.layout.ids)
        self._count = count
        self._taken: list[Any] = []
        self._of_taken: list[int] = []
        self._rows: list[Row] = []
        self._of_rows: list[int] = []

    def put(self, position: int, row: Row | None) -> None:
        if row is not None:
            self._rows.append(row)
            self._of_rows.append(position)

    def take(self, rows: PlainRows, places: Sequence[int], positions: Sequence[int]) -> None:
        layout = self._schema.layout
        is_lacking = self._adapter.adds_defaults or not rows.versions.columns.keys() >= self._ids
        if is_lacking or len(places) < TAKE_MIN:
            self._rows += rows.rows(places, self._adapter, layout)
            self._of_rows += positions
        else:
            self._taken.append(rows.batch(layout).take(pa.array(places, pa.int64())))
            self._of_taken += positions

    def result(self, unread: Sequence[int]) -> FoundBatch:
        layout = self._schema.layout
        batches = self._taken
        if self._rows or not batches:
            batches = [*batches, pa.RecordBatch.from_struct_array(pa.array(self._rows, layout.struct))]
        found = [-1] * self._count
        for number, position in enumerate(self._of_taken + self._of_rows):
            found[position] = number
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        return FoundBatch(self._schema, RowBatch(layout, batch), found, unread)
