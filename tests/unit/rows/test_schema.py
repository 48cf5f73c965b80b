"""Schemas: what is accepted, what is refused and how, and that bytes bring them back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.rows.plain_schema import schema_from_plain, schema_to_plain
from stelae.spi.errors import Corrupt, SchemaMismatch
from stelae.spi.schema import COLUMNS_MAX, Column, Schema, data_type

PLAIN: dict[str, Any] = {
    "columns": [
        {"name": "id", "type": "int64"},
        {"name": "name", "type": "string", "nullable": True},
        {"name": "price", "type": "decimal(10,2)", "default": "0.00"},
    ],
    "key": ["id"],
}


def test_a_plain_schema_gets_ids_by_position_and_version_one() -> None:
    schema = schema_from_plain(PLAIN)
    assert (schema.version, schema.key) == (1, (1,))
    assert [column.id for column in schema.columns] == [1, 2, 3]
    assert [column.required for column in schema.columns] == [True, False, False]
    assert schema_from_plain(schema_to_plain(schema)) == schema


def test_bytes_bring_back_the_schema() -> None:
    schema = schema_from_plain({**PLAIN, "version": 9})
    assert Schema.from_bytes(schema.to_bytes()) == schema


@pytest.mark.parametrize("kind", ["float", "double"])
def test_a_default_of_nan_leaves_a_schema_equal_to_its_copies(kind: str) -> None:
    """NaN differs from itself: clients refused the table, because the master and the tablet had other schemas of one
    version."""
    column = {"name": "celsius", "type": kind, "default": float("nan")}
    schema = schema_from_plain({"columns": [{"name": "id", "type": "int64"}, column], "key": ["id"]})
    copy = Schema.from_bytes(schema.to_bytes())
    assert copy == schema and hash(copy) == hash(schema)
    assert copy.layout == schema.layout and copy.columns[1] == msgspec.structs.replace(schema.columns[1])
    other = msgspec.structs.replace(schema.columns[1], default=0.0)
    assert other != schema.columns[1] and copy.columns[1].default != copy.columns[1].default


def test_a_projection_keeps_the_order_asked_for() -> None:
    schema = schema_from_plain(PLAIN)
    assert schema.project((3, 1)).ids == (3, 1)
    assert schema.project(None) is schema.layout
    assert schema.project((3, 1)) is schema.project((3, 1))
    for ids in ((4,), (1, 1)):
        with pytest.raises(SchemaMismatch):
            schema.project(ids)


def test_arrow_types_are_the_ones_named() -> None:
    types = "bool int8 int16 int32 int64 float double decimal(5,1) string binary date timestamp"
    columns = [{"name": t, "type": t} for t in types.split()]
    schema = schema_from_plain({"columns": columns, "key": ["int8"]})
    assert [str(field.type) for field in schema.layout.arrow] == [
        *("bool", "int8", "int16", "int32", "int64", "float", "double", "decimal128(5, 1)"),
        *("string", "binary", "date32[day]", "timestamp[us]"),
    ]


@pytest.mark.parametrize(
    "text", ["int", "INT64", "decimal", "decimal(0,0)", "decimal(39,1)", "decimal(3,4)", "list", ""]
)
def test_an_unknown_type_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(SchemaMismatch, match=r"int64.*decimal\(p,s\)"):
        data_type(text)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"key": []}, "key"),
        ({"key": ["name"]}, "nullable"),
        ({"key": ["id", "id"]}, "twice"),
        ({"key": ["nothing"]}, "nothing"),
        ({"columns": []}, "columns"),
        ({"columns": [{"name": "id", "type": "int64"}] * 2}, "twice"),
        ({"columns": [{"name": "id", "type": "int64", "id": 0}]}, "id"),
        ({"columns": [{"name": "", "type": "int64"}], "key": [""]}, "name"),
        ({"columns": [{"name": "id", "type": "int64", "colour": 1}]}, "colour"),
        ({"columns": [{"name": "id"}]}, "type"),
        ({"columns": [{"name": 5, "type": "int64"}]}, "str"),
        ({"columns": [{"name": "id", "type": "int64", "default": "x"}]}, "default"),
        ({"columns": [{"name": "id", "type": "int64", "default": True}]}, "default"),
        ({"columns": ["id"]}, "column 1"),
        ({"columns": 5}, "schema"),
        ({"version": 0}, "version"),
        ({"columns": [{"name": f"c{n}", "type": "bool"} for n in range(COLUMNS_MAX + 1)], "key": ["c1"]}, "2000"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(SchemaMismatch, match=says):
        schema_from_plain({**PLAIN, **change})


@given(st.binary(max_size=60))
def test_bytes_that_are_no_schema_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        Schema.from_bytes(data)


def test_bytes_of_an_impossible_schema_are_corrupt() -> None:
    schema = schema_from_plain(PLAIN)
    for place, value in ((0, -1), (2, [99]), (1, [])):
        fields = msgspec.to_builtins(schema)
        fields[place] = value
        with pytest.raises(Corrupt):
            Schema.from_bytes(msgspec.msgpack.encode(fields))
    deep = b"\x91" * 5000
    with pytest.raises(Corrupt):
        Schema.from_bytes(deep)


def test_a_column_says_whether_it_must_be_given() -> None:
    assert Column(id=1, name="a", type="int8").required
    assert not Column(id=1, name="a", type="int8", default=0).required
    assert not Column(id=1, name="a", type="int8", nullable=True).required
