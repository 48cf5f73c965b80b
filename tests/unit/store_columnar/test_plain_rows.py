"""Plain values of single rows: those of ``RowBatch.to_rows``, for every type, with and without nulls, in any slice."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from stelae.rows.limits import RANGES
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout, Schema
from stelae.testing.conformance.store_shapes import changed
from stelae_store_columnar.column_values import column_values
from stelae_store_columnar.plain_rows import PlainRows
from stelae_store_columnar.schema_adapter import SchemaAdapter
from stelae_store_columnar.versions import RowVersions

VALUES: dict[str, list[Any]] = {
    "bool": [True, False, True],
    "int8": [-128, 0, 127],
    "int16": [-(1 << 15), 1, (1 << 15) - 1],
    "int32": [-(1 << 31), 2, (1 << 31) - 1],
    "int64": [-(1 << 63), 3, (1 << 63) - 1],
    "float": [0.5, float("-inf"), -0.0],
    "double": [0.1, float("inf"), 1e308],
    "decimal(9,2)": ["0.01", "-9999999.99", "0.00"],
    "string": ["", "\U0001f600 and \0", "plain"],
    "binary": [b"", b"\0\xff", b"plain"],
    "date": [RANGES["date"][0], 0, RANGES["date"][1]],
    "timestamp": [RANGES["timestamp"][0], -1, RANGES["timestamp"][1]],
}


def schema_of(kind: str) -> Schema:
    columns = [{"name": "id", "type": "int64"}, {"name": "value", "type": kind, "nullable": True}]
    return schema_from_plain({"columns": columns, "key": ["id"]})


def versions_of(rows: RowBatch, schema_version: int = 1) -> RowVersions:
    count = len(rows)
    columns = dict(zip(rows.layout.ids, rows.arrow.columns, strict=True))
    stamps, schemas = pa.repeat(1, count), pa.repeat(pa.scalar(schema_version, pa.int32()), count)
    return RowVersions(rows.arrow.column(0), stamps, None, schemas, columns)


@pytest.mark.parametrize("kind", [*VALUES])
@pytest.mark.parametrize("nulls", [False, True])
def test_a_row_has_the_values_of_the_batch(kind: str, nulls: bool) -> None:
    schema = schema_of(kind)
    values = [*VALUES[kind], *([None] if nulls else []), *VALUES[kind]]
    batch = RowBatch.from_equal_rows(schema.layout, list(enumerate(values)))
    adapter = SchemaAdapter(schema, {1: schema})
    for start in (0, 1, 2):
        rows = batch.slice(start)
        plain = PlainRows(versions_of(rows))
        expected = rows.to_rows()
        each = [plain.rows([place], adapter, schema.layout)[0] for place in range(len(rows))]
        several = plain.rows([2, 0, 1], adapter, schema.layout)
        neighbours = plain.rows(range(1, len(rows)), adapter, schema.layout)
        assert each == expected
        assert several == [expected[2], expected[0], expected[1]]
        assert neighbours == expected[1:]
        for found in (each, neighbours):
            assert [type(value) for row in found for value in row] == [
                type(value) for row in expected[-len(found) :] for value in row
            ]


def test_what_the_buffers_have_in_the_place_of_a_null_is_not_read() -> None:
    """A client may send any bytes there, also such as are no text."""
    valid, ends, data = (
        pa.py_buffer(b"\x05"),
        pa.array([0, 1, 3, 4], pa.int32()).buffers()[1],
        pa.py_buffer(b"a\xff\xfeb"),
    )
    values = column_values(pa.Array.from_buffers(pa.string(), 3, [valid, ends, data]))
    assert [values.at(place) for place in range(3)] == values.several(range(3)) == ["a", None, "b"]


def test_rows_without_columns_are_as_many_as_their_places() -> None:
    schema = schema_of("bool")
    batch = RowBatch.from_equal_rows(schema.layout, [(1, True), (2, False)])
    nothing = Layout(())
    assert PlainRows(versions_of(batch)).rows([0, 1], SchemaAdapter(schema, {1: schema}), nothing) == [(), ()]


def test_versions_without_a_column_have_its_default_and_others_no_value() -> None:
    first = schema_of("string")
    second = changed(first, add={"id": 3, "name": "price", "type": "timestamp", "default": 7}, rename={})
    adapter = SchemaAdapter(second, {1: first, 2: second})
    rows = RowBatch.from_equal_rows(first.layout, [(1, "a")])
    for version, expected in ((1, 7), (2, None)):
        plain = PlainRows(versions_of(rows, version))
        assert plain.rows([0], adapter, second.layout) == [(1, "a", expected)]
        assert plain.rows(range(1), adapter, second.layout) == [(1, "a", expected)]
        assert plain.columns(adapter) is plain.columns(adapter)
        assert plain.rows([0], SchemaAdapter(first, {1: first}), first.layout) == [(1, "a")]
