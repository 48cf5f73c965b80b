"""To which partition rows belong: a partition schema bound to the schema of its table.

Whole batches are placed at once: Arrow encodes the columns, and what is left for each row are calls of C from C. A
level costs 0.1 to 0.2 us for each row. Few rows are placed one by one, which Arrow takes longer to begin with."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property, partial
from itertools import product, repeat
from typing import Any, NamedTuple

import mmh3

from stelae.partition.columns import FEW_ROWS, KeyColumns
from stelae.partition.schema import UNBOUNDED, KeyRange, Partition, PartitionSchema
from stelae.rows.building import build_batch
from stelae.spi.errors import CallerError
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema

NOWHERE = -1
"""The place of a row that lies in none of the table's ranges."""


class NoPartition(CallerError, code="NO_PARTITION"):
    """A row that lies in none of the table's ranges."""


class Share(NamedTuple):
    """The rows of a batch that belong to one partition."""

    partition: int  #: Index into ``Partitioning.partitions``, or ``NOWHERE``.
    rows: RowBatch
    places: Sequence[int]  #: Where the rows stood in the batch, ascending.


class Partitioning:
    """The partitions of a table, numbered from 0: by range, then by bucket of the first level, and so on.

    Args:
        schema: of the table.
        partition_schema: ``BadPartitioning`` when it names columns that are not in the key.
    """

    def __init__(self, schema: Schema, partition_schema: PartitionSchema) -> None:
        self.schema = schema
        self.partition_schema = partition_schema
        self.levels = [(KeyColumns(schema, level.columns), level.buckets) for level in partition_schema.hash_levels]
        columns = partition_schema.range_columns
        self.range_columns = KeyColumns(schema, columns) if columns else None

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """All partitions, by index."""
        buckets = [range(count) for _, count in self.levels]
        ranges = self.partition_schema.ranges
        return tuple(Partition(chosen, one) for one in ranges for chosen in product(*buckets))

    @property
    def whole(self) -> bool:
        """Whether the table is one partition that holds every row."""
        return not self.levels and self.partition_schema.ranges == (UNBOUNDED,)

    def place_of(self, buckets: Sequence[int], place: int = 0) -> int:
        """Return the partition of one bucket for each level, in the range at a place."""
        for bucket, (_, count) in zip(buckets, self.levels, strict=True):
            place = place * count + bucket
        return place

    def place_key(self, key: Sequence[Any]) -> int:
        """Return the partition of one key of plain values; ``SchemaMismatch``: they do not fit the key columns.

        ``NoPartition``: it lies in none of the ranges."""
        (place,) = self.place(build_batch(self.schema.key_layout, [key]))
        if place == NOWHERE:
            raise NoPartition(self.explain_nowhere(key))
        return place

    def place_plain(self, key: Sequence[Any]) -> int:
        """Return the partition of one key of plain values that fit its columns, or ``NOWHERE``. Needs no Arrow."""
        place = 0
        if self.range_columns is not None and self.partition_schema.ranges != (UNBOUNDED,):
            edges, found = self._edges
            columns = self.range_columns
            place = found[bisect_right(edges, columns.order.bound(columns.encode_plain(key)))]
            if place == NOWHERE:
                return NOWHERE
        for level, (columns, buckets) in enumerate(self.levels):
            place = place * buckets + mmh3.mmh3_32_uintdigest(columns.encode_plain(key), level) % buckets
        return place

    def place(self, rows: RowBatch) -> list[int]:
        """Return the partition of each row, or ``NOWHERE``; the batch has the key columns, anywhere, without nulls."""
        return self._few(rows) if len(rows) <= FEW_ROWS else list(self._places(rows).to_pylist())

    def elsewhere(self, rows: RowBatch, partition: int) -> list[int]:
        """Return the places of those rows of a batch that do not belong to a partition, ascending."""
        if len(rows) <= FEW_ROWS:
            found = self._few(rows)
            return (
                [] if found.count(partition) == len(found) else [n for n, one in enumerate(found) if one != partition]
            )
        import pyarrow.compute as pc

        others = pc.not_equal(self._places(rows), partition)
        return list(pc.indices_nonzero(others).to_pylist()) if pc.any(others).as_py() else []

    def split(self, rows: RowBatch) -> list[Share]:
        """Return the rows of each partition that has any, by partition; within one they keep their order."""
        if self.whole or not len(rows):
            return [Share(0, rows, range(len(rows)))] if len(rows) else []
        import pyarrow as pa
        import pyarrow.compute as pc

        places = pa.array(self._few(rows), pa.int64()) if len(rows) <= FEW_ROWS else self._places(rows)
        indices = pc.sort_indices(places)
        sorted_places = places.take(indices)
        runs = pc.run_end_encode(sorted_places)
        shares, start = [], 0
        for end, partition in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            mine = indices.slice(start, end - start)  # Ascending: Arrow's sort is stable.
            taken = RowBatch(rows.layout, rows.arrow.take(mine))
            shares.append(Share(partition, taken, mine.to_pylist()))
            start = end
        return shares

    def explain_nowhere(self, key: Sequence[Any]) -> str:
        """Say why a key has no partition."""
        assert self.range_columns is not None
        values = dict(zip((c.id for c in self.schema.key_layout.columns), key, strict=True))
        text = ", ".join(f"{c.name} = {values[c.id]!r:.40}" for c in self.range_columns.columns)
        return f"{text} lies in none of the table's {len(self.partition_schema.ranges)} ranges"

    def _places(self, rows: RowBatch) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        total = self._range_places(rows)
        for level, (columns, buckets) in enumerate(self.levels):
            # By way of an array of the same words: Arrow takes three times as long to look at each number.
            words = array("I", [*map(mmh3.mmh3_32_uintdigest, columns.encode_all(rows), repeat(level))])
            hashed = pa.Array.from_buffers(pa.uint32(), len(rows), [None, pa.py_buffer(words)]).cast(pa.int64())
            bucket = pc.subtract(hashed, pc.multiply(pc.divide(hashed, buckets), buckets))
            placed = pc.add(pc.multiply(total, buckets), bucket)
            total = pc.if_else(pc.less(total, 0), total, placed) if self._has_gaps else placed
        return total

    def _few(self, rows: RowBatch) -> list[int]:
        places: list[int] = []
        if self.range_columns is not None and self.partition_schema.ranges != (UNBOUNDED,):
            edges, found = self._edges
            places = [found[bisect_right(edges, key)] for key in self.range_columns.order.array(rows).to_pylist()]
        for level, (columns, buckets) in enumerate(self.levels):
            hashed = map(mmh3.mmh3_32_uintdigest, columns.encode_all(rows), repeat(level))
            if places:
                placed = zip(places, hashed, strict=True)
                places = [NOWHERE if place < 0 else place * buckets + number % buckets for place, number in placed]
            else:
                places = [number % buckets for number in hashed]
        return places or [0] * len(rows)

    def _range_places(self, rows: RowBatch) -> Any:
        import pyarrow as pa

        if self.range_columns is None or self.partition_schema.ranges == (UNBOUNDED,):
            return pa.repeat(pa.scalar(0, pa.int64()), len(rows))
        edges, places = self._edges
        keys = self.range_columns.order.array(rows).to_pylist()
        return pa.array(map(places.__getitem__, map(partial(bisect_right, edges), keys)), pa.int64())

    @cached_property
    def _edges(self) -> tuple[list[Any], list[int]]:
        """Bounds in ascending order, and the range (or ``NOWHERE``) below the first, behind the first, and so on."""
        assert self.range_columns is not None
        bound = self.range_columns.order.bound
        edges: list[Any] = []
        places = [NOWHERE]
        for number, one in enumerate(self.partition_schema.ranges):
            if one.lower == b"" or (edges and edges[-1] == bound(one.lower)):
                places[-1] = number
            else:
                edges.append(bound(one.lower))
                places.append(number)
            if one.upper is not None:
                edges.append(bound(one.upper))
                places.append(NOWHERE)
        return edges, places

    @cached_property
    def _has_gaps(self) -> bool:
        ranges: Sequence[KeyRange] = self.partition_schema.ranges
        return ranges != (UNBOUNDED,) and NOWHERE in self._edges[1]
