"""Plain values of single rows: those of ``RowBatch.to_rows``, for every type, with and without nulls, in any slice."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from stelae.rows.limits import RANGES
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from stelae.testing.conformance.store_shapes import changed
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
        readers = PlainRows(versions_of(rows)).readers(adapter)
        found = [tuple([read(place) for read in readers]) for place in range(len(rows))]
        assert found == rows.to_rows()
        assert [type(value) for row in found for value in row] == [type(v) for row in rows.to_rows() for v in row]


def test_versions_without_a_column_have_its_default_and_others_no_value() -> None:
    first = schema_of("string")
    second = changed(first, add={"id": 3, "name": "price", "type": "timestamp", "default": 7}, rename={})
    adapter = SchemaAdapter(second, {1: first, 2: second})
    rows = RowBatch.from_equal_rows(first.layout, [(1, "a")])
    for version, expected in ((1, 7), (2, None)):
        plain = PlainRows(versions_of(rows, version))
        assert [read(0) for read in plain.readers(adapter)] == [1, "a", expected]
        assert plain.readers(adapter) is plain.readers(adapter)
        assert [read(0) for read in plain.readers(SchemaAdapter(first, {1: first}))] == [1, "a"]
