"""Tables made after a frame: which columns they have, and what no table can have."""

from __future__ import annotations

from datetime import date
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from stelae.client.column_types import columns_of
from stelae.client.table_definition import definition
from stelae.spi.errors import SchemaMismatch
from stelae.spi.schema import Schema

EXPECTED = {"station": "string", "day": "timestamp", "celsius": "double", "count": "int64", "dry": "bool"}
FRAME = pd.DataFrame(
    {
        "station": ["Bergen", "Oslo"],
        "day": pd.to_datetime(["2026-06-01", "2026-06-02"]),
        "celsius": [11.5, None],
        "count": pd.array([1, None], dtype="Int64"),
        "dry": [True, False],
    }
)


@pytest.mark.parametrize(
    "data",
    [
        FRAME,
        FRAME.set_index(["station", "day"]),
        FRAME.head(0),
        pl.from_pandas(FRAME),
        pl.from_pandas(FRAME).lazy(),
        pa.Table.from_pandas(FRAME),
        pa.RecordBatch.from_pandas(FRAME),
        pa.Schema.from_pandas(FRAME),
    ],
)
def test_a_frame_of_any_kind_says_the_columns(data: Any) -> None:
    assert columns_of(data) == EXPECTED


def test_a_table_after_a_frame_has_its_columns_and_all_but_the_key_may_be_empty() -> None:
    made = definition("readings", FRAME, ["station", "day"], None, 1)
    columns = Schema.from_bytes(made.schema).columns
    assert [(c.name, c.type, c.nullable) for c in columns] == [
        (name, kind, name not in ("station", "day")) for name, kind in EXPECTED.items()
    ]


def test_types_that_no_column_has_are_told_with_the_column() -> None:
    with pytest.raises(SchemaMismatch, match="column 'where': a table cannot store type list"):
        columns_of(pa.schema([("id", pa.int64()), ("where", pa.list_(pa.float64()))]))
    with pytest.raises(
        SchemaMismatch, match="cannot find the column types of the pandas frame, because of column 'mixed': "
    ):
        columns_of(pd.DataFrame({"mixed": [1, "one", date(2026, 6, 1)]}))
    with pytest.raises(SchemaMismatch, match=r"columns must be a dict of types, .* not str"):
        definition("readings", "id int64", "id", None, 1)
    with pytest.raises(SchemaMismatch, match="'id' appears twice"):
        columns_of(pa.schema([("id", pa.int64()), ("id", pa.int64())]))


@pytest.mark.parametrize(
    "data", [pd.Series([1]), pl.Series([1]), pa.array([1]), pa.chunked_array([[1]]), pa.int64(), [[1]], 5, None]
)
def test_what_has_no_columns_says_what_has(data: Any) -> None:
    with pytest.raises(SchemaMismatch, match=r"a pandas or polars DataFrame|a column must be a dict such as"):
        definition("t", data, "id", None, 1)


def test_a_polars_type_that_arrow_does_not_have_is_told() -> None:
    with pytest.raises(SchemaMismatch, match="cannot find the column types of the polars frame"):
        columns_of(pl.DataFrame({"id": pl.Series([1], dtype=pl.Int128)}))
