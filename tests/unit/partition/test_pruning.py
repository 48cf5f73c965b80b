"""Which partitions a scan visits: never one too few, and few where the predicates say much."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stelae.partition.key_columns import KeyColumns
from stelae.partition.partitioning import NO_PARTITION, Partitioning
from stelae.partition.pruning import COMBINATIONS_MAX, prune
from stelae.partition.schema import HashLevel, KeyRange, PartitionSchema
from stelae.rows.keys import encode_key, encode_keys
from stelae.rows.predicate_filter import filter_rows
from stelae.spi.errors import SchemaMismatch
from stelae.spi.scan import Compare, In, IsNull, Predicate, Prefix, ScanSpec
from stelae.spi.schema import Schema
from tests.at_length import times
from tests.unit.partition.tables import batches, partition_of_key, partitionings, schemas, table, value

OPS = ["=", "!=", "<", "<=", ">", ">="]


@st.composite
def predicates(draw: st.DrawFn, schema: Schema) -> Predicate:
    column = draw(st.sampled_from(schema.columns))
    values = value(column.type)
    kinds: list[st.SearchStrategy[Any]] = [
        st.builds(Compare, st.just(column.id), st.sampled_from(OPS), values),
        st.builds(In, st.just(column.id), st.lists(values, max_size=3).map(tuple)),
        st.builds(IsNull, st.just(column.id), st.booleans()),
    ]
    if column.type in ("string", "binary"):
        kinds.append(st.builds(Prefix, st.just(column.id), values))
    return draw(st.one_of(kinds))


@st.composite
def bounds(draw: st.DrawFn, schema: Schema) -> bytes | None:
    whole = st.tuples(*(value(c.type) for c in schema.key_layout.columns)).map(lambda key: encode_key(schema, key))
    return draw(st.none() | whole | st.binary(max_size=10) | whole.map(lambda key: key[:-1]))


@settings(max_examples=times(150))
@given(st.data())
def test_pruning_never_drops_a_partition_with_a_matching_row(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    partitioning = data.draw(partitionings(schema, gaps=True))
    rows = data.draw(batches(schema))
    wanted = tuple(data.draw(st.lists(predicates(schema), max_size=3)))
    spec = ScanSpec(predicates=wanted, key_from=data.draw(bounds(schema)), key_until=data.draw(bounds(schema)))
    keys = encode_keys(schema, rows)
    inside = [
        (spec.key_from is None or key >= spec.key_from) and (spec.key_until is None or key < spec.key_until)
        for key in keys
    ]
    found = filter_rows(schema, wanted, rows.filter(inside))
    holding = {*partitioning.partitions_of(found)} - {NO_PARTITION}
    visited = prune(partitioning, spec)
    assert holding <= {*visited}
    assert visited == sorted(visited) and {*visited} <= set(range(len(partitioning.partitions)))


TABLE = table(["int32", "string"], ["double"])
SENSOR, NAME, READING = (TABLE.by_name[name].id for name in ("k0", "k1", "v0"))
HASHED = Partitioning(TABLE, PartitionSchema((HashLevel((SENSOR,), 8), HashLevel((NAME,), 4))))


def ranged(*edges: int) -> Partitioning:
    columns = KeyColumns(TABLE, (SENSOR,))
    cuts = [columns.encode((edge,)) for edge in edges]
    ranges = [KeyRange(lower, upper) for lower, upper in zip([b"", *cuts], [*cuts, None], strict=True)]
    return Partitioning(TABLE, PartitionSchema((), (SENSOR,), tuple(ranges)))


def visited(partitioning: Partitioning, *wanted: Predicate, **fields: Any) -> list[int]:
    return prune(partitioning, ScanSpec(predicates=wanted, **fields))


def test_equality_on_the_columns_of_every_level_leaves_one_partition() -> None:
    found = visited(HASHED, Compare(SENSOR, "=", 5), Compare(NAME, "=", "x"))
    assert found == [partition_of_key(HASHED, (5, "x"))]


def test_equality_on_one_level_leaves_its_bucket_of_that_level() -> None:
    assert len(visited(HASHED, Compare(SENSOR, "=", 5))) == 4
    assert len(visited(HASHED, Compare(NAME, "=", "x"))) == 8


def test_a_list_leaves_the_buckets_of_its_values() -> None:
    found = visited(HASHED, In(SENSOR, (1, 2, 3)), Compare(NAME, "=", "x"))
    assert found == sorted({partition_of_key(HASHED, (n, "x")) for n in (1, 2, 3)})
    assert visited(HASHED, In(SENSOR, ())) == []


def test_a_list_that_is_too_long_prunes_nothing() -> None:
    assert len(visited(HASHED, In(SENSOR, tuple(range(COMBINATIONS_MAX + 1))))) == 32


def test_comparisons_on_hash_columns_and_anything_on_values_prune_nothing() -> None:
    assert len(visited(HASHED, Compare(SENSOR, "<", 5), Compare(READING, "=", 1.0), IsNull(READING))) == 32


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Compare(SENSOR, "<", 10), [0]),
        (Compare(SENSOR, "<=", 10), [0, 1]),
        (Compare(SENSOR, ">", 19), [1, 2]),
        (Compare(SENSOR, ">=", 20), [2]),
        (Compare(SENSOR, "=", 15), [1]),
        (In(SENSOR, (1, 25)), [0, 2]),
        (Compare(SENSOR, "!=", 15), [0, 1, 2]),
    ],
)
def test_ranges_are_pruned_by_comparisons(predicate: Predicate, expected: list[int]) -> None:
    assert visited(ranged(10, 20), predicate) == expected


def test_contradicting_predicates_leave_nothing() -> None:
    assert visited(ranged(10, 20), Compare(SENSOR, ">", 25), Compare(SENSOR, "<", 5)) == []


def test_ranges_are_pruned_by_the_range_of_keys_when_they_begin_the_key() -> None:
    lower, upper = (encode_key(TABLE, (n, "m")) for n in (12, 17))
    assert visited(ranged(10, 15, 20), key_from=lower, key_until=upper) == [1, 2]


def test_a_key_range_within_one_value_prunes_hash_levels_too() -> None:
    lower, upper = (encode_key(TABLE, (5, text)) for text in ("a", "m"))
    assert len(visited(HASHED, key_from=lower, key_until=upper)) == 4


def test_a_prefix_prunes_ranges_of_text() -> None:
    columns = KeyColumns(TABLE, (NAME,))
    ranges = (KeyRange(b"", columns.encode(("b",))), KeyRange(columns.encode(("b",)), None))
    partitioning = Partitioning(TABLE, PartitionSchema((), (NAME,), ranges))
    assert visited(partitioning, Prefix(NAME, "ab")) == [0]
    assert visited(partitioning, Prefix(NAME, "c")) == [1]
    assert visited(partitioning, Prefix(NAME, "")) == [0, 1]


def test_a_value_that_does_not_fit_its_column_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match="column 'k0'"):
        visited(HASHED, Compare(SENSOR, "=", "five"))
    with pytest.raises(SchemaMismatch, match="needs text or bytes"):
        visited(ranged(1), Prefix(SENSOR, "5"))


def over(columns: list[str], types: list[str], *edges: tuple[Any, ...]) -> Partitioning:
    """Ranges over some key columns of a table of these types."""
    schema = table(types)
    key = KeyColumns(schema, [schema.by_name[name].id for name in columns])
    cuts = [key.encode(edge) for edge in edges]
    ranges = [KeyRange(lower, upper) for lower, upper in zip([b"", *cuts], [*cuts, None], strict=True)]
    return Partitioning(schema, PartitionSchema((), key.ids, tuple(ranges)))


def test_bytes_that_no_row_has_as_its_key_bound_nothing() -> None:
    """Eight zero bytes stand before every double, and decode as a NaN, which stands behind them."""
    partitioning = over(["k0"], ["double"], (0.0,))
    assert visited(partitioning, key_from=bytes(8)) == [0, 1]


def test_a_bound_whose_value_no_row_can_have_is_no_error() -> None:
    """16 bytes hold decimals of more digits than the column has."""
    schema = table(["decimal(10,2)", "int32"])
    hashed = Partitioning(schema, PartitionSchema((HashLevel((schema.key[0],), 3),)))
    first = b"\xff" * 16
    assert visited(hashed, key_from=first + bytes(4), key_until=first + b"\xff" * 4) == [0, 1, 2]


def test_a_bound_of_keys_keeps_the_range_that_it_lies_in() -> None:
    """Rows of the bound's own first column stand before it, too."""
    partitioning = over(["k0"], ["int32", "int32"], (5,))
    assert visited(partitioning, key_until=encode_key(partitioning.schema, (5, 7))) == [0, 1]
    assert visited(partitioning, key_until=encode_key(partitioning.schema, (4, 7))) == [0]


def test_a_prefix_with_a_zero_byte_is_looked_for_as_keys_have_it() -> None:
    partitioning = over(["k0", "k1"], ["string", "int32"], ("a\0b", 0), ("a\1", 0))
    place = partition_of_key(partitioning, ("a\0c", 1))
    assert visited(partitioning, Prefix(partitioning.schema.key[0], "a\0c")) == [place] == [1]
