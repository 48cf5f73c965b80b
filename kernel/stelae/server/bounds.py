"""What a replica keeps of its partition, between the catalog and whoever looks at its rows."""

from __future__ import annotations

from collections.abc import Callable

from stelae.host.superblock import PartitionBounds as KeptPartition
from stelae.partition.schema import Partition
from stelae.partition.tablet_partition import TabletPartition
from stelae.rows.batcher import Batcher, OutsideCheck
from stelae.rows.limits import DEFAULTS, LimitSettings
from stelae.spi.schema import Schema


def kept(schema: Schema, partition: Partition, scheme: bytes) -> KeptPartition:
    """Return what the superblock keeps; ``BadPartitioning``, ``Corrupt``: no tablet of this schema can have it."""
    if scheme:
        TabletPartition(schema, scheme, partition.buckets)
    return KeptPartition(
        hash_buckets=partition.buckets, key_low=partition.range.lower, key_high=partition.range.upper, scheme=scheme
    )


def bounds_of(partition: KeptPartition) -> Callable[[Schema], OutsideCheck] | None:
    """Return what says under a schema which rows are not the replica's; ``None``: nobody has told it, it takes all."""
    if not partition.scheme:
        return None
    return lambda schema: TabletPartition(schema, partition.scheme, partition.hash_buckets).outside


def batcher_of(
    schema: Schema, key_bytes_max: int | None, partition: KeptPartition, limits: LimitSettings = DEFAULTS
) -> Batcher:
    """Make the batcher of a tablet."""
    return Batcher(schema, key_bytes_max, limits, bounds_of(partition))
