"""Where rows belong: one partition each, the same whether they come alone or in a batch."""

from __future__ import annotations

import mmh3
from hypothesis import given
from hypothesis import strategies as st

from stelae.partition.key_columns import KeyColumns
from stelae.partition.partitioning import NO_PARTITION, Partitioning
from stelae.partition.schema import HashLevel, KeyRange, PartitionSchema
from stelae.rows.batch_building import build_batch
from stelae.rows.keys import encode_keys
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from tests.unit.partition.tables import batches, partition_of_key, partitionings, schemas, table


def holds(partitioning: Partitioning, index: int, row: RowBatch) -> bool:
    """Whether a partition holds a row, by its definition and by another way than the product's."""
    partition = partitioning.partitions[index]
    ranges = partitioning.range_columns
    if ranges is not None:
        key = encoded(partitioning.schema, ranges.ids, row)
        upper = partition.range.upper
        if key < partition.range.lower or (upper is not None and key >= upper):
            return False
    for number, level in enumerate(partitioning.partition_schema.hash_levels):
        hashed = mmh3.hash(encoded(partitioning.schema, level.columns, row), number, signed=False)
        if hashed % level.buckets != partition.buckets[number]:
            return False
    return True


def encoded(schema: Schema, ids: tuple[int, ...], row: RowBatch) -> bytes:
    return encode_keys(Schema(1, schema.project(ids).columns, ids), row)[0]


@given(st.data())
def test_every_row_lands_in_exactly_one_partition(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    partitioning = data.draw(partitionings(schema))
    rows = data.draw(batches(schema))
    places = partitioning.partitions_of(rows)
    for number, place in enumerate(places):
        row = rows.slice(number, 1)
        assert [i for i in range(len(partitioning.partitions)) if holds(partitioning, i, row)] == [place]


@given(st.data())
def test_with_gaps_a_row_lands_in_one_partition_or_nowhere(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    partitioning = data.draw(partitionings(schema, gaps=True))
    rows = data.draw(batches(schema))
    for number, place in enumerate(partitioning.partitions_of(rows)):
        row = rows.slice(number, 1)
        fit = [i for i in range(len(partitioning.partitions)) if holds(partitioning, i, row)]
        assert fit == ([] if place == NO_PARTITION else [place])


@given(st.data())
def test_a_split_batch_holds_every_row_once_in_order(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    partitioning = data.draw(partitionings(schema, gaps=True))
    rows = data.draw(batches(schema))
    shares = partitioning.split(rows)
    assert sorted(place for share in shares for place in share.positions) == list(range(len(rows)))
    assert [share.partition for share in shares] == sorted({*partitioning.partitions_of(rows)})
    for share in shares:
        assert list(share.positions) == sorted(share.positions)
        assert {*partitioning.partitions_of(share.rows)} == {share.partition}
        for place, row in zip(share.positions, range(len(share.rows)), strict=True):
            assert share.rows.arrow.slice(row, 1).equals(rows.arrow.slice(place, 1)) or has_nan(share.rows, row)


def has_nan(rows: RowBatch, number: int) -> bool:
    return any(value != value for value in rows.slice(number, 1).to_rows()[0])


@given(st.data())
def test_a_key_alone_says_where_its_row_is(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    partitioning = data.draw(partitionings(schema))
    rows = data.draw(batches(schema))
    keys = rows.select(schema.key_layout)
    assert (
        [partition_of_key(partitioning, key) for key in keys.to_rows()]
        == partitioning.partitions_of(rows)
        == partitioning.partitions_of(keys)
    )


def test_a_slice_of_a_batch_is_placed_like_its_rows() -> None:
    schema = table(["int32", "string"])
    partitioning = Partitioning(schema, PartitionSchema((HashLevel((1,), 7), HashLevel((2,), 3))))
    rows = build_batch(schema.layout, [(n, f"text {n}") for n in range(50)])
    assert partitioning.partitions_of(rows.slice(13, 20)) == partitioning.partitions_of(rows)[13:33]


def test_levels_over_equal_values_are_independent() -> None:
    """With one seed for all levels, both buckets of such a row would always be the same."""
    schema = table(["int64", "int64"])
    partitioning = Partitioning(schema, PartitionSchema((HashLevel((1,), 4), HashLevel((2,), 4))))
    places = partitioning.partitions_of(build_batch(schema.layout, [(n, n) for n in range(1000)]))
    assert {*places} == set(range(16))


def test_hash_buckets_are_even() -> None:
    schema = table(["int64"])
    partitioning = Partitioning(schema, PartitionSchema((HashLevel((1,), 8),)))
    places = partitioning.partitions_of(build_batch(schema.layout, [(n,) for n in range(8000)]))
    assert all(800 < places.count(bucket) < 1200 for bucket in range(8))


def test_a_key_in_a_gap_has_no_partition_and_the_reason_names_its_values() -> None:
    schema = table(["int32", "string"])
    day = KeyColumns(schema, (1,))
    ranges = (KeyRange(day.encode((0,)), day.encode((10,))), KeyRange(day.encode((20,)), None))
    partitioning = Partitioning(schema, PartitionSchema((), (1,), ranges))
    assert partition_of_key(partitioning, (9, "x")) == 0
    assert partition_of_key(partitioning, (20, "x")) == 1
    assert partition_of_key(partitioning, (10, "x")) == NO_PARTITION
    assert partitioning.explain_no_partition((10, "x")) == "k0 = 10 is in none of the table's 2 ranges"


def test_a_table_without_levels_is_one_partition_and_its_batches_are_not_touched() -> None:
    schema = table(["string"])
    partitioning = Partitioning(schema, PartitionSchema())
    rows = build_batch(schema.layout, [("a",), ("b",)])
    (share,) = partitioning.split(rows)
    assert share.rows is rows and share.partition == 0
    assert partitioning.split(rows.slice(0, 0)) == []
