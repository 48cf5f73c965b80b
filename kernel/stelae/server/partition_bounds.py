"""Converts a tablet's partition from the catalog's form into the superblock's, and into the batcher's check of rows."""

from __future__ import annotations

from collections.abc import Callable

from stelae.host.superblock import PartitionBounds
from stelae.partition.schema import Partition
from stelae.partition.tablet_partition import TabletPartition
from stelae.rows.batcher import Batcher, OutsideCheck
from stelae.rows.limits import DEFAULTS, LimitSettings
from stelae.spi.schema import Schema


def stored_bounds(schema: Schema, partition: Partition, scheme: bytes) -> PartitionBounds:
    """Return the partition as the superblock stores it.

    Raises:
        BadPartitioning, Corrupt: a tablet with this schema cannot have this partition.
    """
    if scheme:
        TabletPartition(schema, scheme, partition.buckets)
    return PartitionBounds(
        hash_buckets=partition.buckets, key_low=partition.range.lower, key_high=partition.range.upper, scheme=scheme
    )


def check_of(partition: PartitionBounds) -> Callable[[Schema], OutsideCheck] | None:
    """Return a function that makes, for a schema, the check which rows lie outside the partition.

    ``None``: the superblock has no partition scheme, so the replica accepts every row."""
    if not partition.scheme:
        return None
    return lambda schema: TabletPartition(schema, partition.scheme, partition.hash_buckets).outside


def batcher_of(
    schema: Schema, key_bytes_max: int | None, partition: PartitionBounds, limits: LimitSettings = DEFAULTS
) -> Batcher:
    """Make the batcher of a tablet. It refuses rows that lie outside the tablet's partition."""
    return Batcher(schema, key_bytes_max, limits, check_of(partition))
