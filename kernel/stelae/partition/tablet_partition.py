"""The check that a row belongs to a tablet's partition.

Clients route rows. A tablet gets rows of other partitions only from a client with wrong locations. Such a row would be
lost to readers, who look for it in its own tablet, and there a second row could have its key. A tablet keeps what it
needs for the check: the hash levels, its bucket of each level, and its range. These never change. Ranges that the table
adds or drops elsewhere do not matter to it."""

from __future__ import annotations

from typing import Any

from stelae.partition.key_columns import KeyColumns
from stelae.partition.partitioning import Partitioning
from stelae.partition.schema import UNBOUNDED, BadPartitioning, Partition, PartitionSchema
from stelae.spi.errors import CallerError
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema


def tablet_scheme(table: PartitionSchema, partition: Partition) -> bytes:
    """Return the part of a table's partition schema that a tablet keeps: the hash levels and its own range, encoded.

    It is empty if the tablet is the table's only one and holds every key."""
    ranges = (partition.range,) if table.range_columns else (UNBOUNDED,)
    if not table.hash_levels and ranges == (UNBOUNDED,):
        return b""
    return PartitionSchema(table.hash_levels, table.range_columns, ranges, table.version).to_bytes()


class TabletPartition:
    """The partition of one tablet.

    Args:
        schema: of the rows. Any version will do, because the key never changes.
        scheme: the bytes that ``tablet_scheme`` returns.
        buckets: the tablet's bucket of each hash level.

    Raises:
        BadPartitioning: scheme and buckets do not fit each other, or do not fit the schema.
        Corrupt: the scheme cannot be read, or is of a later version.
    """

    def __init__(self, schema: Schema, scheme: bytes, buckets: tuple[int, ...]) -> None:
        read = PartitionSchema.from_bytes(scheme)
        counts = [level.buckets for level in read.hash_levels]
        fits = len(buckets) == len(counts) and all(0 <= n < count for n, count in zip(buckets, counts, strict=True))
        if not fits or len(read.ranges) != 1:
            raise BadPartitioning(
                f"a tablet has the buckets {list(buckets)} and {len(read.ranges)} ranges; expected one bucket of each "
                f"level (levels of {counts} buckets) and one range"
            )
        self._partitioning = Partitioning(schema, read)
        self._buckets = buckets
        self._index = self._partitioning.partition_of_buckets(buckets)

    def outside(self, rows: RowBatch) -> dict[int, str]:
        """Return the positions of the rows that do not belong to the tablet, each with the reason.

        The batch has the key columns, without nulls."""
        positions = self._partitioning.rows_outside(rows, self._index)
        if not positions:
            return {}
        layout, own = self._partitioning.schema.key_layout, str(self)
        keys = RowBatch(rows.layout, rows.arrow.take(positions)).select(layout).to_rows()
        names = [column.name for column in layout.columns]
        return {
            position: f"the key {_listed(names, key)} is outside of the tablet's partition: {own}"
            for position, key in zip(positions, keys, strict=True)
        }

    def __str__(self) -> str:
        parts = []
        for (columns, count), bucket in zip(self._partitioning.levels, self._buckets, strict=True):
            parts.append(f"bucket {bucket} of {count} by {', '.join(column.name for column in columns.columns)}")
        ranges = self._partitioning.range_columns
        (own_range,) = self._partitioning.partition_schema.ranges
        if ranges is not None and own_range != UNBOUNDED:
            names = ", ".join(column.name for column in ranges.columns)
            lower = f" from {_bound(ranges, own_range.lower)}" if own_range.lower else ""
            parts.append(
                f"{names}{lower}" + ("" if own_range.upper is None else f" until {_bound(ranges, own_range.upper)}")
            )
        return "; ".join(parts)


def _listed(names: list[str], values: tuple[Any, ...]) -> str:
    return ", ".join(f"{name} = {value!r:.40}" for name, value in zip(names, values, strict=True))


def _bound(columns: KeyColumns, encoded: bytes) -> str:
    try:
        return ", ".join(f"{value!r:.40}" for value in columns.decode(encoded))
    except CallerError:
        return encoded[:40].hex()
