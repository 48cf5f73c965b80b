"""Partition schemas: which key columns decide to which tablet a row belongs.

A partition schema has any number of hash levels, each with its own columns, and at most one range level. A row belongs
to one bucket of each level and to one range. Each combination of buckets and range is one *partition*. Only key columns
are used, so the key alone decides the partition of a row. A row never moves, because its key never changes.

Version 1 of the scheme, which a schema carries and which never changes silently:

* the columns of a level are encoded as a key of just these columns (``stelae.rows.keys``, version 1), the last one
  without an end mark;
* the bucket is ``murmur3_x86_32(encoded, seed = position of the level from 0) mod buckets``, unsigned;
* a range includes its lower bound and excludes its upper bound; bounds are encoded keys of the range columns.

Vectors are published in ``docs/reference/partition-vectors.json``."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from stelae.spi.errors import CallerError, Corrupt

PARTITION_VERSION = 1

HASH_LEVELS_MAX = 8  #: Most hash levels of a table: more would make more tablets than it can have.
BUCKETS_MAX = 1024  #: Most buckets of one level: 32 bits of hash spread them evenly.
RANGES_MAX = 4096  #: Most ranges of one table.
PARTITIONS_MAX = 65_536  #: Most partitions of one table: clients keep all of them in memory.


class BadPartitioning(CallerError, code="BAD_PARTITIONING"):
    """A partition schema is invalid, or does not fit the table's schema."""


class HashLevel(msgspec.Struct, frozen=True, array_like=True):
    """A level that distributes rows over ``buckets`` by the hash of some key columns."""

    columns: tuple[int, ...]  #: Ids of key columns, in the order in which they are encoded.
    buckets: int  #: 2 to ``BUCKETS_MAX``.


class KeyRange(msgspec.Struct, frozen=True, array_like=True):
    """A range of encoded range columns, from ``lower`` (inclusive) to ``upper`` (exclusive)."""

    lower: bytes = b""  #: Empty: without a lower bound.
    upper: bytes | None = None  #: ``None``: without an upper bound.

    def overlaps(self, lower: bytes, upper: bytes | None) -> bool:
        """Return true if this range and the one from ``lower`` to ``upper`` (exclusive) can have a key in common."""
        return (upper is None or self.lower < upper) and (self.upper is None or lower < self.upper)


UNBOUNDED = KeyRange()


class Partition(msgspec.Struct, frozen=True, array_like=True):
    """One bucket of each hash level and one range: together the rows of one tablet."""

    buckets: tuple[int, ...] = ()
    range: KeyRange = UNBOUNDED


class PartitionSchema(msgspec.Struct, frozen=True, array_like=True):
    """The hash levels and ranges of one table. ``BadPartitioning`` if they are invalid.

    Without levels and ranges, the table has one partition. Ranges ascend and do not overlap. A key between two ranges
    has no partition."""

    hash_levels: tuple[HashLevel, ...] = ()
    range_columns: tuple[int, ...] = ()
    ranges: tuple[KeyRange, ...] = (UNBOUNDED,)
    version: int = PARTITION_VERSION

    def __post_init__(self) -> None:
        if self.version != PARTITION_VERSION:
            raise BadPartitioning(f"partition schema of version {self.version}; this release knows {PARTITION_VERSION}")
        if len(self.hash_levels) > HASH_LEVELS_MAX or not 1 <= len(self.ranges) <= RANGES_MAX:
            what = f"{len(self.hash_levels)} hash levels and {len(self.ranges)} ranges"
            raise BadPartitioning(f"{what}: at most {HASH_LEVELS_MAX} levels, and 1 to {RANGES_MAX} ranges")
        hashed = [column for level in self.hash_levels for column in level.columns]
        for level in self.hash_levels:
            if not level.columns or not 2 <= level.buckets <= BUCKETS_MAX:
                what = f"a hash level of {len(level.columns)} columns and {level.buckets} buckets"
                raise BadPartitioning(f"{what}: expected at least one column and 2 to {BUCKETS_MAX} buckets")
        for what, ids in (("hash levels", hashed), ("range columns", list(self.range_columns))):
            if len(set(ids)) != len(ids):
                raise BadPartitioning(f"a column is used twice in the {what}: {ids!r}; each may be used once")
        self._check_ranges()
        if self.count > PARTITIONS_MAX:
            what = f"{self.count} partitions (hash buckets times ranges)"
            raise BadPartitioning(f"{what}; expected at most {PARTITIONS_MAX}: use fewer buckets or ranges")

    def _check_ranges(self) -> None:
        if not self.range_columns and self.ranges != (UNBOUNDED,):
            raise BadPartitioning("the partition schema has ranges, but no range columns")
        for one in self.ranges:
            if one.upper is not None and one.upper <= one.lower:
                raise BadPartitioning(
                    f"a range from {one.lower.hex() or 'the smallest key'} to {one.upper.hex()} contains no key"
                )
        for before, after in pairwise(self.ranges):
            if before.upper is None or before.upper > after.lower:
                raise BadPartitioning(
                    f"ranges overlap, or are out of order, at {after.lower.hex() or 'the smallest key'}"
                )

    @property
    def count(self) -> int:
        """Number of partitions."""
        total = len(self.ranges)
        for level in self.hash_levels:
            total *= level.buckets
        return total

    def to_bytes(self) -> bytes:
        """Return the encoded form for catalogs and tokens."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> PartitionSchema:
        """Decode what :meth:`to_bytes` returned. ``Corrupt``: the bytes are not a partition schema."""
        try:
            return _DECODER.decode(data)
        except (ValueError, BadPartitioning, RecursionError) as error:
            raise Corrupt(f"not a partition schema: {error}") from error


_DECODER = msgspec.msgpack.Decoder(PartitionSchema)
