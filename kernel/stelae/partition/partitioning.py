"""The partition of each row: a partition schema together with the schema of its table.

Batches are handled as a whole: Arrow encodes the key columns, and the loops over the rows run in C. A level costs 0.1
to 0.2 us for each row. A batch of few rows is handled row by row, because starting Arrow costs more."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property, partial
from itertools import product, repeat
from typing import Any, NamedTuple

import mmh3

from stelae.partition.key_columns import FEW_ROWS, KeyColumns
from stelae.partition.schema import UNBOUNDED, KeyRange, Partition, PartitionSchema
from stelae.spi.errors import CallerError
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema

NO_PARTITION = -1
"""The index for a row that is in none of the table's ranges."""


class NoPartition(CallerError, code="NO_PARTITION"):
    """A row is in none of the table's ranges."""


class PartitionRows(NamedTuple):
    """The rows of a batch that belong to one partition."""

    partition: int  #: Index into ``Partitioning.partitions``, or ``NO_PARTITION``.
    rows: RowBatch
    positions: Sequence[int]  #: The positions of the rows in the batch, ascending.


class Partitioning:
    """The partitions of a table, numbered from 0: by range, then by bucket of the first level, and so on.

    Args:
        schema: of the table.
        partition_schema: of the table. ``BadPartitioning``: it names columns that are not in the key.
    """

    def __init__(self, schema: Schema, partition_schema: PartitionSchema) -> None:
        self.schema = schema
        self.partition_schema = partition_schema
        self.levels = [(KeyColumns(schema, level.columns), level.buckets) for level in partition_schema.hash_levels]
        columns = partition_schema.range_columns
        self.range_columns = KeyColumns(schema, columns) if columns else None

    @cached_property
    def key_columns(self) -> KeyColumns:
        """All key columns."""
        return KeyColumns(self.schema, self.schema.key)

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """All partitions, by index."""
        buckets = [range(count) for _, count in self.levels]
        ranges = self.partition_schema.ranges
        return tuple(Partition(chosen, one) for one in ranges for chosen in product(*buckets))

    @property
    def is_unpartitioned(self) -> bool:
        """True if the table has only one partition, which holds every row."""
        return not self.levels and self.partition_schema.ranges == (UNBOUNDED,)

    def partition_of_buckets(self, buckets: Sequence[int], range_index: int = 0) -> int:
        """Return the index of the partition with one bucket for each level, in the range at ``range_index``."""
        index = range_index
        for bucket, (_, count) in zip(buckets, self.levels, strict=True):
            index = index * count + bucket
        return index

    def partition_of_plain_key(self, key: Sequence[Any]) -> int:
        """Return the index for one key of plain values that fit its columns, or ``NO_PARTITION``. Needs no Arrow."""
        index = 0
        if self.range_columns is not None and self.partition_schema.ranges != (UNBOUNDED,):
            edges, range_of_edge = self._edges
            columns = self.range_columns
            index = range_of_edge[bisect_right(edges, columns.order.bound(columns.encode_from_key(key)))]
            if index == NO_PARTITION:
                return NO_PARTITION
        for level, (columns, buckets) in enumerate(self.levels):
            index = index * buckets + mmh3.mmh3_32_uintdigest(columns.encode_from_key(key), level) % buckets
        return index

    def partitions_of(self, rows: RowBatch) -> list[int]:
        """Return the partition index of each row, or ``NO_PARTITION``.

        The batch has the key columns, at any position, without nulls."""
        return self._few_indexes(rows) if len(rows) <= FEW_ROWS else list(self._partition_indexes(rows).to_pylist())

    def rows_outside(self, rows: RowBatch, partition: int) -> list[int]:
        """Return the positions of the rows of a batch that do not belong to a partition, ascending."""
        if len(rows) <= FEW_ROWS:
            indexes = self._few_indexes(rows)
            if indexes.count(partition) == len(indexes):
                return []
            return [position for position, index in enumerate(indexes) if index != partition]
        import pyarrow.compute as pc

        others = pc.not_equal(self._partition_indexes(rows), partition)
        return list(pc.indices_nonzero(others).to_pylist()) if pc.any(others).as_py() else []

    def split(self, rows: RowBatch) -> list[PartitionRows]:
        """Split a batch by partition. Partitions without rows are left out; the rows of one keep their order."""
        if self.is_unpartitioned or not len(rows):
            return [PartitionRows(0, rows, range(len(rows)))] if len(rows) else []
        import pyarrow as pa
        import pyarrow.compute as pc

        indexes = (
            pa.array(self._few_indexes(rows), pa.int64()) if len(rows) <= FEW_ROWS else self._partition_indexes(rows)
        )
        indices = pc.sort_indices(indexes)
        sorted_places = indexes.take(indices)
        runs = pc.run_end_encode(sorted_places)
        split, start = [], 0
        for end, partition in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            positions = indices.slice(start, end - start)  # Ascending: Arrow's sort is stable.
            own_rows = RowBatch(rows.layout, rows.arrow.take(positions))
            split.append(PartitionRows(partition, own_rows, positions.to_pylist()))
            start = end
        return split

    def explain_no_partition(self, key: Sequence[Any]) -> str:
        """Return the reason, for people, why a key has no partition."""
        assert self.range_columns is not None
        values = dict(zip((c.id for c in self.schema.key_layout.columns), key, strict=True))
        text = ", ".join(f"{c.name} = {values[c.id]!r:.40}" for c in self.range_columns.columns)
        return f"{text} is in none of the table's {len(self.partition_schema.ranges)} ranges"

    def _partition_indexes(self, rows: RowBatch) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        total = self._range_indexes(rows)
        for level, (columns, buckets) in enumerate(self.levels):
            # The numbers go through an array of 32-bit words: Arrow would need three times as long for a list.
            words = array("I", [*map(mmh3.mmh3_32_uintdigest, columns.encode_rows(rows), repeat(level))])
            hashed = pa.Array.from_buffers(pa.uint32(), len(rows), [None, pa.py_buffer(words)]).cast(pa.int64())
            bucket = pc.subtract(hashed, pc.multiply(pc.divide(hashed, buckets), buckets))
            placed = pc.add(pc.multiply(total, buckets), bucket)
            total = pc.if_else(pc.less(total, 0), total, placed) if self._has_gaps else placed
        return total

    def _few_indexes(self, rows: RowBatch) -> list[int]:
        indexes: list[int] = []
        if self.range_columns is not None and self.partition_schema.ranges != (UNBOUNDED,):
            edges, range_of_edge = self._edges
            indexes = [
                range_of_edge[bisect_right(edges, key)] for key in self.range_columns.order.array(rows).to_pylist()
            ]
        for level, (columns, buckets) in enumerate(self.levels):
            hashed = map(mmh3.mmh3_32_uintdigest, columns.encode_rows(rows), repeat(level))
            if indexes:
                placed = zip(indexes, hashed, strict=True)
                indexes = [
                    NO_PARTITION if index < 0 else index * buckets + number % buckets for index, number in placed
                ]
            else:
                indexes = [number % buckets for number in hashed]
        return indexes or [0] * len(rows)

    def _range_indexes(self, rows: RowBatch) -> Any:
        import pyarrow as pa

        if self.range_columns is None or self.partition_schema.ranges == (UNBOUNDED,):
            return pa.repeat(pa.scalar(0, pa.int64()), len(rows))
        edges, indexes = self._edges
        keys = self.range_columns.order.array(rows).to_pylist()
        return pa.array(map(indexes.__getitem__, map(partial(bisect_right, edges), keys)), pa.int64())

    @cached_property
    def _edges(self) -> tuple[list[Any], list[int]]:
        """Return the bounds of all ranges, ascending, and the range (or ``NO_PARTITION``) before and after each bound.

        The second list has one element more than the first."""
        assert self.range_columns is not None
        bound = self.range_columns.order.bound
        edges: list[Any] = []
        indexes = [NO_PARTITION]
        for number, one in enumerate(self.partition_schema.ranges):
            if one.lower == b"" or (edges and edges[-1] == bound(one.lower)):
                indexes[-1] = number
            else:
                edges.append(bound(one.lower))
                indexes.append(number)
            if one.upper is not None:
                edges.append(bound(one.upper))
                indexes.append(NO_PARTITION)
        return edges, indexes

    @cached_property
    def _has_gaps(self) -> bool:
        ranges: Sequence[KeyRange] = self.partition_schema.ranges
        return ranges != (UNBOUNDED,) and NO_PARTITION in self._edges[1]
