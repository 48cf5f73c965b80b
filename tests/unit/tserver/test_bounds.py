"""What a replica keeps of its partition, and how it comes back from the superblock."""

from __future__ import annotations

import msgspec
import pytest

from stelae.host.superblock import PartitionBounds as KeptPartition
from stelae.partition.key_columns import KeyColumns
from stelae.partition.schema import BadPartitioning, HashLevel, KeyRange, Partition, PartitionSchema
from stelae.partition.tablet_partition import tablet_scheme
from stelae.rows.batch_building import build_batch
from stelae.rows.plain_schema import schema_from_plain
from stelae.server.bounds import bounds_of, kept
from stelae.spi.errors import Corrupt

SCHEMA = schema_from_plain({"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})
HELD = KeyRange(b"", KeyColumns(SCHEMA, (1,)).encode((5,)))
TABLE = PartitionSchema((HashLevel((1,), 2),), (1,), (HELD,))


def test_the_bounds_that_are_kept_refuse_what_is_not_the_tablets() -> None:
    mine = [kept(SCHEMA, one, tablet_scheme(TABLE, one)) for one in (Partition((0,), HELD), Partition((1,), HELD))]
    rows = build_batch(SCHEMA.layout, [(n,) for n in range(8)])
    outside = []
    for one in mine:
        bounds = bounds_of(msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=KeptPartition))
        assert bounds is not None
        outside.append({*bounds(SCHEMA)(rows)})
    assert outside[0] & outside[1] == {5, 6, 7} and outside[0] | outside[1] == {*range(8)}


def test_a_superblock_of_a_release_that_kept_no_scheme_has_no_bounds() -> None:
    old = msgspec.msgpack.encode({"hash_buckets": [1], "key_low": b"", "key_high": None})
    assert bounds_of(msgspec.msgpack.decode(old, type=KeptPartition)) is None


@pytest.mark.parametrize("scheme", [b"\xff", TABLE.to_bytes()[:-1] + b"\x02"], ids=["no scheme", "of version 2"])
def test_a_scheme_that_cannot_be_read_makes_no_tablet(scheme: bytes) -> None:
    with pytest.raises(Corrupt, match="not a partition schema"):
        kept(SCHEMA, Partition((0,), HELD), scheme)


def test_a_partition_that_the_scheme_does_not_have_makes_no_tablet() -> None:
    with pytest.raises(BadPartitioning, match="one bucket of each level"):
        kept(SCHEMA, Partition((2,), HELD), TABLE.to_bytes())
