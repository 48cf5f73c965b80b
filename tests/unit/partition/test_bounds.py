"""What a tablet takes: the rows of its partition, the same that clients send there, and no others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.partition import key_columns, partitioning
from stelae.partition.key_columns import FEW_ROWS, KeyColumns
from stelae.partition.partitioning import Partitioning
from stelae.partition.schema import BadPartitioning, HashLevel, KeyRange, Partition, PartitionSchema
from stelae.partition.tablet_partition import TabletPartition, tablet_scheme
from stelae.rows.batch_building import build_batch
from stelae.spi.errors import Corrupt
from tests.unit.partition.tables import batches, partitionings, schemas, table


@pytest.fixture(params=["few rows", "many rows"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are placed one by one, or by Arrow, however many they are."""
    if request.param == "many rows":
        for module in (key_columns, partitioning):
            monkeypatch.setattr(module, "FEW_ROWS", 0)


@pytest.mark.usefixtures("way")
@given(st.data())
def test_every_tablet_takes_what_clients_send_it_and_refuses_the_rest(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    table = data.draw(partitionings(schema, gaps=True))
    rows = data.draw(batches(schema))
    places = table.partitions_of(rows)
    for number, partition in enumerate(table.partitions):
        scheme = tablet_scheme(table.partition_schema, partition)
        if not scheme:
            assert table.is_unpartitioned
            continue
        outside = TabletPartition(schema, scheme, partition.buckets).outside(rows)
        assert [*outside] == [place for place, where in enumerate(places) if where != number]


@given(st.data())
def test_few_rows_and_many_are_placed_alike(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    table = data.draw(partitionings(schema, gaps=True))
    rows = data.draw(batches(schema))
    assert table.partitions_of(rows) == table._partition_indexes(rows).to_pylist()


def test_more_rows_than_are_placed_one_by_one_are_refused_where_they_stand() -> None:
    schema = table(["int64"])
    whole = Partitioning(schema, PartitionSchema((HashLevel((1,), 4),)))
    rows = build_batch(schema.layout, [(n,) for n in range(FEW_ROWS * 3)])
    outside = TabletPartition(schema, tablet_scheme(whole.partition_schema, Partition((2,))), (2,)).outside(rows)
    assert [*outside] == [n for n, where in enumerate(whole.partitions_of(rows)) if where != 2]


def test_a_refusal_says_the_key_and_what_the_tablet_has() -> None:
    schema = table(["int64", "string"])
    day = KeyColumns(schema, (1,))
    held = KeyRange(day.encode((10,)), day.encode((20,)))
    whole = PartitionSchema((HashLevel((2,), 4),), (1,), (held,))
    bounds = TabletPartition(schema, tablet_scheme(whole, Partition((3,), held)), (3,))
    rows = build_batch(schema.layout, [(20, "x")])
    assert bounds.outside(rows) == {
        0: "the key k0 = 20, k1 = 'x' is outside of the tablet's partition: bucket 3 of 4 by k1; k0 from 10 until 20"
    }


def test_ranges_that_come_and_go_elsewhere_change_nothing_for_a_tablet() -> None:
    held, more = KeyRange(b"a", b"b"), KeyRange(b"c", None)
    before, after = (PartitionSchema((), (1,), ranges) for ranges in ((held,), (held, more)))
    assert tablet_scheme(before, Partition((), held)) == tablet_scheme(after, Partition((), held))


def test_the_described_tablet_of_a_table_takes_everything() -> None:
    assert tablet_scheme(PartitionSchema(), Partition()) == b""


@pytest.mark.parametrize("buckets", [(), (4,), (-1,), (0, 0)])
def test_buckets_that_the_levels_do_not_have_are_no_partition(buckets: tuple[int, ...]) -> None:
    scheme = PartitionSchema((HashLevel((1,), 4),)).to_bytes()
    with pytest.raises(BadPartitioning, match=r"one bucket of each level \(levels of \[4\] buckets\) and one range"):
        TabletPartition(table(["int64"]), scheme, buckets)


def test_columns_that_are_not_of_the_key_and_bytes_that_are_no_scheme_are_refused() -> None:
    with pytest.raises(BadPartitioning, match="not id 7; the key is 'k0'"):
        TabletPartition(table(["int64"]), PartitionSchema((HashLevel((7,), 4),)).to_bytes(), (0,))
    with pytest.raises(Corrupt, match="not a partition schema"):
        TabletPartition(table(["int64"]), b"\x01", ())
