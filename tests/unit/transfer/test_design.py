"""Tables as files suggest them, and how they differ from those that exist."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from stelae.client.column_types import stored_type
from stelae.partition.plain_partitioning import partition_schema_from_plain
from stelae.partition.schema import BadPartitioning
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.schema import COLUMNS_MAX
from stelae.spi.write import OpKind
from stelae_transfer.design import BadDesign, TableDiffers, check_fits, design, type_remarks
from stelae_transfer.inference import (
    arrow_of_texts,
    arrow_of_values,
    nearest_type,
    repeated_keys,
    unique_columns,
    unique_key,
)
from tests.unit.client.tablets import MemoryTable

TYPES = {"station": pa.string(), "day": pa.date32(), "celsius": pa.float64(), 'odd "name"': None}


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-2", None], "int64"),
        (["1", "2.5"], "double"),
        (["1", "nan", "1e5"], "double"),
        (["007", "123"], "string"),
        ([" 007", " 008"], "string"),
        (["123", "\t-007.5 "], "string"),
        (["\u00a007"], "string"),
        ([" 7", "8 ", " 0", " 0.5"], "double"),
        (["+1", "0"], "int64"),
        (["true", "FALSE"], "bool"),
        (["1", "0"], "int64"),
        (["2026-06-01", "1969-12-31"], "date"),
        (["2026-06-01T10:00:00Z", "2026-06-01T10:00:00.5+02:00"], "timestamp"),
        (["2026-06-01 10:00", "2026-06-01"], "timestamp"),
        (["2026-06-01", "soon"], "string"),
        (["9223372036854775807"], "int64"),
        (["9223372036854775808"], "decimal(38,0)"),
        (["1", " +12345678901234567890", None], "decimal(38,0)"),
        (["1" + "0" * 38], "string"),
        (["1.5", "1" + "0" * 22, "1e38"], "double"),
        (["1.5", "1" + "0" * 23], "decimal(38,1)"),
        (["1.5", "1" + "0" * 38], "string"),
        (["9007199254740993", "0.5"], "decimal(38,1)"),
        (["9007199254740993", "0.5", "0.25"], "string"),
        (["1234567890123456789012345678.01"], "decimal(38,2)"),
        (["1234567890123456789012345678.01", "nan"], "string"),
        (["0.30000000000000004", "1.100000000000000089e+00", "0.1000000000000000000000"], "double"),
        (["1e-400", "2"], "string"),
        (["", "x"], "string"),
        ([None, None], "string"),
        (["0x10"], "string"),
    ],
)
def test_the_type_of_a_column_is_the_first_that_all_its_texts_have(texts: list[str | None], kind: str) -> None:
    assert stored_type(arrow_of_texts(texts)) == kind


def test_values_of_json_have_their_own_types() -> None:
    assert arrow_of_values([1, None]) == pa.int64()
    assert arrow_of_values([1, 2.5]) == pa.float64()
    assert arrow_of_values(["2026-06-01"]) == pa.date32()
    assert arrow_of_values(["1", "2"]) == pa.string()
    assert arrow_of_values([1 << 70, 1]) == pa.decimal128(38, 0)
    assert arrow_of_values([1 << 53, 0.5]) == pa.float64()
    assert arrow_of_values([(1 << 53) + 1, 0.5, 0.25]) == pa.decimal128(38, 2)
    assert arrow_of_values([Decimal("1234567890123456789.25"), 1]) == pa.decimal128(38, 2)
    for wide in ([10**38], [(1 << 53) + 1, 1e-30], [Decimal("1e-400")]):
        with pytest.raises(TypeError, match="numbers that neither a double nor 38 digits hold, such as"):
            arrow_of_values(wide)
    assert stored_type("values of the kinds int, str") is None
    for odd in ([{}], [[1]], ["a", 1], [True, 1]):
        with pytest.raises(TypeError, match="values of the kinds"):
            arrow_of_values(odd)


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (pa.uint8(), "int16"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.large_string(), "string"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.timestamp("ns", "Europe/Oslo"), "timestamp"),
        (pa.decimal128(12, 2), "decimal(12,2)"),
        (pa.decimal256(50, 2), None),
        (pa.float16(), "float"),
        (pa.list_(pa.int8()), None),
        (pa.time64("us"), None),
    ],
)
def test_what_stores_an_arrow_type(kind: Any, stored: str | None) -> None:
    assert stored_type(kind) == stored


def test_a_design_reads_back_as_the_table_it_describes() -> None:
    made = design("my readings", TYPES, ["station", "day"], ["station:4"], "")
    node, _, locations = made.to_toml().partition("# in the file for --tables")
    tablet = tomllib.loads(node)["tablet"]
    schema = schema_from_plain({"columns": tablet["columns"], "key": tablet["key"]})
    assert schema == made.schema()
    assert [column.type for column in schema.columns] == ["string", "date", "double", "string"]
    assert [column.nullable for column in schema.columns] == [False, False, True, True]
    table = tomllib.loads(locations)["tables"]["my readings"]
    assert partition_schema_from_plain(schema, table["partition"]).count == len(table["tablets"]) == 4
    assert tablet["id"] == table["tablets"][0]["id"]
    assert made.to_plain()["tablets"] == 4


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("id;name", "; if its cells are separated by ';', pass --delimiter ';'"),
        ("id\tname", "pass --format tsv"),
        ("id|name", "pass --delimiter '|'"),
    ],
)
def test_a_header_that_looks_like_several_names_is_told_with_its_delimiter(header: str, says: str) -> None:
    with pytest.raises(BadDesign) as caught:
        design("t", {header: pa.string()}, ["id"], [], "")
    assert str(caught.value).endswith(says)


@pytest.mark.parametrize(
    ("key", "levels", "says"),
    [
        ([], [], "a new table needs a key; pass --key with columns of the file"),
        (["stat"], [], "no key column 'stat' in the file; it has: station, day"),
        (["station"], ["celsius:4"], "the file cannot become a table"),
        (["station"], ["station:1"], "the file cannot become a table"),
    ],
)
def test_what_cannot_be_a_table_says_why(key: Sequence[str], levels: Sequence[str], says: str) -> None:
    with pytest.raises(BadDesign, match=says):
        design("t", TYPES, key, levels, "")


def test_a_hash_level_without_buckets_is_refused_with_an_example() -> None:
    with pytest.raises(BadPartitioning, match="--hash takes COLUMNS:BUCKETS, such as sensor:4, not 'station'"):
        design("t", TYPES, ["station"], ["station"], "")


def test_too_many_columns_and_types_that_nothing_stores_are_told() -> None:
    with pytest.raises(BadDesign, match=r"2000 columns(.|\n)*choose up to 2000 with --columns"):
        design("t", {f"c{n}": pa.int64() for n in range(COLUMNS_MAX + 1)}, ["c0"], [], "")
    with pytest.raises(BadDesign, match="column 'tags' is list<item: string>, which no column type can store"):
        design("t", {"id": pa.int64(), "tags": pa.list_(pa.string())}, ["id"], [], "")


ALL = {"sensor": None, "minute": None, "celsius": None, "note": None}


@pytest.mark.parametrize(
    ("types", "kind", "key", "levels", "says"),
    [
        ({**ALL, "extra": None}, OpKind.UPSERT, [], [], "column 'extra' is not in the table(.|\n)*--skip-unknown"),
        ({"sensor": None, "note": None}, OpKind.UPSERT, [], [], "key column 'minute' is not in the file"),
        ({**ALL, "note": pa.int64()}, OpKind.UPSERT, [], [], "column 'note' is int64 in the file and string in the"),
        (ALL, OpKind.UPSERT, ["minute"], [], "the key of the table is sensor, minute, not minute"),
        (ALL, OpKind.UPSERT, [], ["minute:2"], "the table is hashed by sensor:2, not by minute:2"),
    ],
)
def test_every_difference_that_no_row_could_overcome_is_told(
    types: dict[str, Any], kind: OpKind, key: list[str], levels: list[str], says: str
) -> None:
    table = MemoryTable(partition={"hash": [{"columns": ["sensor"], "buckets": 2}]}).table
    with pytest.raises(TableDiffers, match=says):
        check_fits(table, types, kind, key, levels)


def test_what_goes_together_leaves_remarks_at_most() -> None:
    table = MemoryTable(partition={"hash": [{"columns": ["sensor"], "buckets": 2}]}).table
    assert check_fits(table, ALL, OpKind.UPSERT, ["sensor", "minute"], ["sensor:2"]) == []
    some = {"sensor": pa.int8(), "minute": pa.uint16()}
    assert len(check_fits(table, some, OpKind.INSERT, [], [])) == 2
    assert check_fits(table, some, OpKind.UPDATE, [], []) == []


def test_texts_that_do_not_fit_are_told_with_one_of_them() -> None:
    sample = {"sensor": ["1", "2.5", "x", None], "note": ["1", "b"], "celsius": ["1", "2"], "other": ["a"]}
    assert type_remarks(MemoryTable().table.schema, sample) == [
        "column 'sensor': 2 of the first 4 values are not of type int32, such as '2.5'; these rows will be bad rows"
    ]


def test_columns_that_tell_rows_apart_are_found() -> None:
    sample = {"a": [1, 2, 3], "b": [1, 1, 2], "c": ["x", None, "y"], "d": [[1], [2], [3]], "e": []}
    assert unique_columns(sample) == ["a"]
    assert unique_key(sample) == ["a"]


def test_the_first_columns_that_tell_rows_apart_together_are_a_key() -> None:
    sample = {"note": ["x", None, "x"], "station": ["b", "b", "l"], "day": [1, 2, 1], "n": [1, 1, 1]}
    assert unique_key(sample) == ["station", "day"]
    assert unique_key({"a": [1, 1], "b": [2, 2]}) == unique_key({"a": [], "b": []}) == unique_key({}) == []
    assert unique_key({"a": [[1], [1]], "b": [1, 2]}) == ["b"] and unique_key({"a": [[1], [1]], "b": [1, 1]}) == []


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["1", "2", "NA", None], ("int64", 1, 3, "NA")),
        (["1", "2.5", "x"], ("double", 1, 3, "x")),
        (["2026-06-01", "2026-06-02", "soon"], ("date", 1, 3, "soon")),
        (["1"] * 2000 + ["x"], ("int64", 1, 2001, "x")),
        (["1", "2", "x"] * 500, ("int64", 6, 20, "x")),
        (["5 pence", "6 pence"], None),
        (["x", "1"], None),
        (["x"] * 100 + ["1"] * 900, None),
        (["01234", "5", "6", "x"], None),
        ([" 01234", "5", "6", "x"], None),
        (["a", "b", "1"], None),
        ([None, None], None),
        ([], None),
    ],
)
def test_a_column_that_is_text_for_the_sake_of_a_few_values_is_found(texts: list[Any], found: Any) -> None:
    assert nearest_type(texts) == found


def test_rows_that_have_the_key_of_an_earlier_one_are_counted() -> None:
    sample = {"a": [1, 1, 1, 2, None, None], "b": ["x", "x", "y", "x", "x", "x"]}
    assert (repeated_keys(sample, ["a"]), repeated_keys(sample, ["a", "b"]), repeated_keys(sample, ["b"])) == (2, 1, 4)
