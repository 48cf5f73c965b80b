"""Collects the rows that a lookup finds: as plain rows for few keys, and as one Arrow batch for many.

Arrow copies the rows of a source with one call. That costs a fraction of making plain values, but a call takes tens of
microseconds, and so is slower for few rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import chain

import pyarrow as pa

from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from stelae.spi.store import FoundBatch, FoundRows
from stelae_store_columnar.plain_rows import PlainRows, Row
from stelae_store_columnar.schema_adapter import SchemaAdapter

TAKE_MIN = 8
"""Fewer rows of a source become plain values first: a call of Arrow takes as long as their values."""

BATCH_BYTES_MAX = 1 << 30
"""Rows with more bytes are returned as plain rows. In one batch, the values of a column must have less than 2 GiB."""


class FoundKeys(ABC):
    """The rows of the keys of one lookup, by the positions of the keys. Each key has at most one row."""

    @abstractmethod
    def put(self, position: int, row: Row | None) -> None:
        """Add the row of a key; ``None``: it has none."""

    @abstractmethod
    def take(self, rows: PlainRows, places: Sequence[int], positions: Sequence[int]) -> None:
        """Add rows of a source. None of them is partial.

        Args:
            rows: of the source.
            places: of the rows in the source.
            positions: of the keys, in the same order.
        """

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
        self._count = count
        self._taken: list[RowBatch] = []
        self._of_taken: list[int] = []
        self._rows: list[Row] = []
        self._of_rows: list[int] = []

    def put(self, position: int, row: Row | None) -> None:
        if row is not None:
            self._rows.append(row)
            self._of_rows.append(position)

    def take(self, rows: PlainRows, places: Sequence[int], positions: Sequence[int]) -> None:
        layout = self._schema.layout
        if len(places) < TAKE_MIN:
            self._rows += rows.rows(places, self._adapter, layout)
            self._of_rows += positions
        else:
            self._taken.append(RowBatch(layout, rows.taken(places, self._adapter, layout)))
            self._of_taken += positions

    def result(self, unread: Sequence[int]) -> FoundRows | FoundBatch:
        if sum(batch.nbytes for batch in self._taken) > BATCH_BYTES_MAX:
            return self._as_rows(unread)
        layout = self._schema.layout
        batches = [batch.arrow for batch in self._taken]
        if self._rows or not batches:
            batches.append(pa.RecordBatch.from_struct_array(pa.array(self._rows, layout.struct)))
        found = [-1] * self._count
        for number, position in enumerate(self._of_taken + self._of_rows):
            found[position] = number
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        return FoundBatch(self._schema, RowBatch(layout, batch), found, unread)

    def _as_rows(self, unread: Sequence[int]) -> FoundRows:
        found: list[Row | None] = [None] * self._count
        rows = chain(chain.from_iterable(batch.to_rows() for batch in self._taken), self._rows)
        for position, row in zip(self._of_taken + self._of_rows, rows, strict=True):
            found[position] = row
        return FoundRows(self._schema, found, unread)
