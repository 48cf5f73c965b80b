"""Which rows a tablet takes: those of its own partition, and no others.

Clients route rows, so a tablet gets others only from a client whose locations are wrong. Such a row would be found by
nobody who looks where it belongs, and a second row could have its key there. What a tablet needs to know of its table
is little and never changes: the hash levels, its bucket of each, and its range. Adding or dropping other ranges is none
of its business."""

from __future__ import annotations

from typing import Any

from stelae.partition.columns import KeyColumns
from stelae.partition.partitioning import Partitioning
from stelae.partition.schema import UNBOUNDED, BadPartitioning, Partition, PartitionSchema
from stelae.spi.errors import CallerError
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema


def scheme_of(table: PartitionSchema, partition: Partition) -> bytes:
    """Return what a tablet keeps of its table's partition schema: the levels, and its own range alone.

    Empty, if it is the table's only tablet and takes every key."""
    ranges = (partition.range,) if table.range_columns else (UNBOUNDED,)
    if not table.hash_levels and ranges == (UNBOUNDED,):
        return b""
    return PartitionSchema(table.hash_levels, table.range_columns, ranges, table.version).to_bytes()


class Bounds:
    """The partition of one tablet.

    Args:
        schema: of the rows; whichever version, for keys never change.
        scheme: of one range, as ``scheme_of`` returns it.
        buckets: the tablet's bucket of each hash level.

    Raises:
        BadPartitioning: they do not fit each other.
        Corrupt: the scheme cannot be read, or is of a later version.
    """

    def __init__(self, schema: Schema, scheme: bytes, buckets: tuple[int, ...]) -> None:
        read = PartitionSchema.from_bytes(scheme)
        counts = [level.buckets for level in read.hash_levels]
        fits = len(buckets) == len(counts) and all(0 <= one < most for one, most in zip(buckets, counts, strict=True))
        if not fits or len(read.ranges) != 1:
            raise BadPartitioning(
                f"a tablet with the buckets {list(buckets)} and {len(read.ranges)} ranges; it has one of each of "
                f"{counts} buckets, and one range"
            )
        self._partitioning = Partitioning(schema, read)
        self._buckets = buckets
        self._place = self._partitioning.place_of(buckets)

    def outside(self, rows: RowBatch) -> dict[int, str]:
        """Return which rows of a batch do not belong to the tablet, and why; the batch has the key, without nulls."""
        places = self._partitioning.elsewhere(rows, self._place)
        if not places:
            return {}
        layout, own = self._partitioning.schema.key_layout, str(self)
        keys = RowBatch(rows.layout, rows.arrow.take(places)).select(layout).to_rows()
        names = [column.name for column in layout.columns]
        return {
            place: f"the key {_listed(names, key)} lies outside the tablet's partition: {own}"
            for place, key in zip(places, keys, strict=True)
        }

    def __str__(self) -> str:
        parts = []
        for (columns, count), bucket in zip(self._partitioning.levels, self._buckets, strict=True):
            parts.append(f"bucket {bucket} of {count} by {', '.join(column.name for column in columns.columns)}")
        ranges = self._partitioning.range_columns
        (held,) = self._partitioning.partition_schema.ranges
        if ranges is not None and held != UNBOUNDED:
            names = ", ".join(column.name for column in ranges.columns)
            lower = f" from {_bound(ranges, held.lower)}" if held.lower else ""
            parts.append(f"{names}{lower}" + ("" if held.upper is None else f" until {_bound(ranges, held.upper)}"))
        return "; ".join(parts)


def _listed(names: list[str], values: tuple[Any, ...]) -> str:
    return ", ".join(f"{name} = {value!r:.40}" for name, value in zip(names, values, strict=True))


def _bound(columns: KeyColumns, encoded: bytes) -> str:
    try:
        return ", ".join(f"{value!r:.40}" for value in columns.decode(encoded))
    except CallerError:
        return encoded[:40].hex()
