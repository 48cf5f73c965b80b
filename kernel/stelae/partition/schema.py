"""Partition schemas: by which key columns the rows of a table are spread over its tablets.

There may be several hash levels, each over columns of its own, and one range level. A row belongs to one bucket of
each level and to one range, and every combination of these is one *partition*. Only key columns take part, so that a
key alone says where its row is; a row never moves, since keys never change.

Version 1 of the scheme, which a schema carries and which never changes silently:

* the columns of a level are encoded as a key of just these columns (``stelae.rows.keys``, version 1), the last one
  without an end mark;
* the bucket is ``murmur3_x86_32(encoded, seed = position of the level from 0) mod buckets``, unsigned;
* ranges hold their lower bound and end before their upper one; bounds are encoded keys of the range columns.

Vectors are published in ``docs/reference/partition-vectors.json``."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from stelae.spi.errors import CallerError, Corrupt

PARTITION_VERSION = 1

HASH_LEVELS_MAX = 8  #: More levels multiply into more tablets than a table can have.
BUCKETS_MAX = 1024  #: Most buckets of one level: 32 bits of hash spread them evenly.
RANGES_MAX = 4096  #: Most ranges of one table.
PARTITIONS_MAX = 65_536  #: Most partitions of one table: clients hold them all.


class BadPartitioning(CallerError, code="BAD_PARTITIONING"):
    """A partition schema that no table can have, or that does not fit the table's schema."""


class HashLevel(msgspec.Struct, frozen=True, array_like=True):
    """Rows are spread over ``buckets`` by the hash of some key columns."""

    columns: tuple[int, ...]  #: Ids of key columns, in the order in which they are encoded.
    buckets: int  #: 2 to ``BUCKETS_MAX``.


class KeyRange(msgspec.Struct, frozen=True, array_like=True):
    """Encoded range columns from ``lower`` to before ``upper``."""

    lower: bytes = b""  #: Empty: from the least.
    upper: bytes | None = None  #: ``None``: to the greatest.

    def overlaps(self, lower: bytes, upper: bytes | None) -> bool:
        """Whether some key may lie in this range and in ``lower`` to before ``upper``."""
        return (upper is None or self.lower < upper) and (self.upper is None or lower < self.upper)


UNBOUNDED = KeyRange()


class Partition(msgspec.Struct, frozen=True, array_like=True):
    """One bucket of each hash level and one range: the rows of one tablet."""

    buckets: tuple[int, ...] = ()
    range: KeyRange = UNBOUNDED


class PartitionSchema(msgspec.Struct, frozen=True, array_like=True):
    """Levels and ranges of one table; making a wrong one raises ``BadPartitioning``.

    Without levels and ranges the table is one partition. Ranges are in order and do not overlap; what lies between two
    of them has no place in the table."""

    hash_levels: tuple[HashLevel, ...] = ()
    range_columns: tuple[int, ...] = ()
    ranges: tuple[KeyRange, ...] = (UNBOUNDED,)
    version: int = PARTITION_VERSION

    def __post_init__(self) -> None:
        if self.version != PARTITION_VERSION:
            raise BadPartitioning(f"partitioning of version {self.version}; this release knows {PARTITION_VERSION}")
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
                raise BadPartitioning(f"a column stands twice in the {what}: {ids!r}; each may be used once")
        self._check_ranges()
        if self.count > PARTITIONS_MAX:
            raise BadPartitioning(f"{self.count} partitions; a table has at most {PARTITIONS_MAX}")

    def _check_ranges(self) -> None:
        if not self.range_columns and self.ranges != (UNBOUNDED,):
            raise BadPartitioning("there are ranges, and no columns that they are of")
        for one in self.ranges:
            if one.upper is not None and one.upper <= one.lower:
                raise BadPartitioning(f"a range from {one.lower.hex() or 'the least'} to {one.upper.hex()} is empty")
        for before, after in pairwise(self.ranges):
            if before.upper is None or before.upper > after.lower:
                raise BadPartitioning(f"ranges overlap, or are out of order, at {after.lower.hex() or 'the least'}")

    @property
    def count(self) -> int:
        """Number of partitions."""
        total = len(self.ranges)
        for level in self.hash_levels:
            total *= level.buckets
        return total

    def to_bytes(self) -> bytes:
        """Return the form in which catalogs and tokens carry it."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> PartitionSchema:
        """Read what :meth:`to_bytes` wrote; ``Corrupt``: the bytes are no partition schema."""
        try:
            return _DECODER.decode(data)
        except (ValueError, BadPartitioning, RecursionError) as error:
            raise Corrupt(f"not a partition schema: {error}") from error


_DECODER = msgspec.msgpack.Decoder(PartitionSchema)
