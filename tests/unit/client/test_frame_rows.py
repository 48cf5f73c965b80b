"""Rows of frames, one by one, and frames of keys: what a loop over ``iterrows`` and a selection of columns give."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from stelae.client import AsyncTable
from stelae.client.filters import BadFilter, predicates
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import CallerError, SchemaMismatch
from tests.unit.client.tablets import MemoryTable, one_column

SCHEMA = schema_from_plain(
    {
        "columns": [
            {"name": "station", "type": "string"},
            {"name": "day", "type": "date"},
            {"name": "celsius", "type": "double", "nullable": True},
            {"name": "minutes", "type": "int32", "nullable": True},
            {"name": "factor", "type": "double", "default": 1.0},
        ],
        "key": ["day", "station"],
    }
)
FRAME = pd.DataFrame(
    {
        "station": ["Bergen", "Bergen", "Oslo"],
        "day": pd.to_datetime(["2026-06-01", "2026-06-02", "2026-06-01"]),
        "celsius": [11.5, None, 9.0],
        "minutes": [130, 610, None],
    }
)


def on_table(work: Callable[[AsyncTable], Awaitable[Any]]) -> None:
    asyncio.run(work(MemoryTable(SCHEMA).table))


async def expected(table: AsyncTable) -> list[dict[str, Any]]:
    other = MemoryTable(SCHEMA).table
    await other.insert(FRAME)
    return await other.scan(order="key").to_pylist()


async def one_by_one(table: AsyncTable) -> None:
    for _, row in FRAME.iterrows():
        await table.insert(row)


async def as_rows(table: AsyncTable) -> None:
    await table.insert(row for _, row in FRAME.iterrows())


async def in_a_session(table: AsyncTable) -> None:
    async with table.session() as session:
        for _, row in FRAME.iterrows():
            await session.insert(row)


async def as_rows_of_a_session(table: AsyncTable) -> None:
    async with table.session() as session:
        await session.insert(FRAME.iloc[place] for place in range(3))


@pytest.mark.parametrize("write", [one_by_one, as_rows, in_a_session, as_rows_of_a_session])
def test_a_row_of_a_frame_is_a_row_and_means_what_it_does_in_the_frame(write: Any) -> None:
    async def work(table: AsyncTable) -> None:
        await write(table)
        assert await table.scan(order="key").to_pylist() == await expected(table)

    on_table(work)


def test_nan_is_a_value_of_a_frames_row_where_null_is_not_allowed_and_of_other_rows() -> None:
    async def work(table: AsyncTable) -> None:
        row = pd.Series({"station": "Oslo", "day": FRAME.day[0], "celsius": np.nan, "factor": np.nan})
        plain = {**row.to_dict(), "station": "Lisbon"}
        await table.insert([plain, row, plain | {"station": "Tromsø"}])
        found = await table.scan(["station", "celsius", "factor"], order="key").to_pylist()
        assert [(r["station"], repr(r["celsius"]), repr(r["factor"])) for r in found] == [
            ("Lisbon", "nan", "nan"),
            ("Oslo", "None", "nan"),
            ("Tromsø", "nan", "nan"),
        ]

    on_table(work)


def test_a_row_of_a_frame_says_which_rows_go_whatever_else_it_holds() -> None:
    async def work(table: AsyncTable) -> None:
        await table.insert(FRAME)
        await table.delete(FRAME.iloc[0])
        async with table.session() as session:
            await session.delete(FRAME.iloc[2])
        assert await table.scan(["celsius", "minutes"]).to_pylist() == [{"celsius": None, "minutes": 610}]

    on_table(work)


def test_a_column_of_a_frame_is_no_row() -> None:
    async def work(table: AsyncTable) -> None:
        result = await table.insert(FRAME["celsius"], errors="return")
        assert (result.rows, result.failed) == (1, 1) and "no column '0', '1', '2'" in result.failures[0].reason

    on_table(work)


KEYS: list[Callable[[], Any]] = [
    lambda: FRAME,
    lambda: FRAME[["station", "day"]],
    lambda: FRAME.set_index(["station", "day"]),
    lambda: FRAME.set_index(["day", "station"]).index,
    lambda: [FRAME.iloc[place] for place in range(3)],
    lambda: FRAME[["day", "station"]].values,
    lambda: FRAME[["day", "station"]].itertuples(index=False),
    lambda: pl.from_pandas(FRAME),
    lambda: pl.from_pandas(FRAME).lazy(),
    lambda: pa.Table.from_pandas(FRAME),
    lambda: pa.RecordBatch.from_pandas(FRAME),
    lambda: pa.Table.from_pandas(FRAME).to_reader(),
]


@pytest.mark.parametrize("keys", KEYS)
def test_a_frame_is_a_list_of_keys(keys: Callable[[], Any]) -> None:
    async def work(table: AsyncTable) -> None:
        await table.insert(FRAME)
        found = await table.get_many(keys())
        assert [row and row["celsius"] for row in found] == [11.5, None, 9.0]

    on_table(work)


def test_a_frame_without_a_key_column_is_no_list_of_keys() -> None:
    async def work(table: AsyncTable) -> None:
        for frame in (FRAME[["station"]], pl.DataFrame({"station": ["Oslo"]}), pa.table({"station": ["Oslo"]})):
            with pytest.raises(SchemaMismatch, match="the columns day, station; this one lacks 'day'"):
                await table.get_many(frame)

    on_table(work)


def test_a_row_of_a_frame_is_a_key() -> None:
    async def work(table: AsyncTable) -> None:
        await table.insert(FRAME)
        for key in (FRAME.iloc[0], FRAME[["station", "day"]].iloc[0], FRAME[["day", "station"]].iloc[0].values):
            row = await table.get(key)
            assert row is not None and row["minutes"] == 130
        with pytest.raises(SchemaMismatch, match="a key has values for exactly day, station, not"):
            await table.get(FRAME[["station"]].iloc[0])

    on_table(work)


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("celsius > 12", r"such as \('celsius', '>', 20.5\), not the text 'celsius > 12'"),
        ({"station": "Oslo"}, r"such as \('celsius', '>', 20.5\), not dict"),
        (("celsius", "=", None), r"got null; for rows without a value, use \('celsius', 'is null'\)"),
        (("celsius", "=", pd.NA), r"; for rows without a value, use \('celsius', 'is null'\)"),
    ],
)
def test_a_filter_that_is_none_says_what_one_is(where: Any, says: str) -> None:
    with pytest.raises(BadFilter, match=says):
        predicates(SCHEMA, where)


def test_text_is_no_time_to_read_at_and_the_error_says_what_is() -> None:
    with pytest.raises(CallerError, match=r"not str '5m'; text is not parsed: .*timedelta\(minutes=5\)"):
        MemoryTable(SCHEMA).table.scan(at="5m")  # type: ignore[arg-type]


def test_a_float_for_a_decimal_is_refused_with_what_to_do() -> None:
    schema = one_column("value", "decimal(5,2)")

    async def work() -> None:
        table = MemoryTable(schema).table
        frame = pd.DataFrame({"id": [1, 2], "value": [1.1, 2.25]})
        with pytest.raises(
            SchemaMismatch, match=r"got a column of double; a float is not exact; convert it first"
        ) as told:
            await table.insert(frame)
        assert ".map(lambda value: Decimal(str(value)))" in str(told.value)
        result = await table.insert(frame.to_dict("records"), errors="return")
        assert "got float 1.1; a float is not exact: pass decimal.Decimal(str(value))" in result.failures[0].reason
        frame["value"] = frame["value"].map(lambda value: Decimal(str(value)))
        await table.insert(frame)
        assert [row["value"] for row in await table.scan().to_pylist()] == [Decimal("1.10"), Decimal("2.25")]

    asyncio.run(work())


def test_a_dict_of_columns_is_told_from_a_dict_of_values() -> None:
    async def work(table: AsyncTable) -> None:
        result = await table.upsert({"station": ["a", "b"], "day": [1, 2], "minutes": [5, 6]}, errors="return")
        hint = "got list ['a', 'b']; a dict is one row: pass many rows as a list of dicts, or as a frame"
        assert result.failures[0].reason == f"column 'station': expected string, {hint}"

    on_table(work)


@pytest.mark.parametrize("name", ["Station", "station ", "statoin"])
def test_a_column_that_is_nearly_one_is_asked_for(name: str) -> None:
    with pytest.raises(BadFilter, match="did you mean 'station'"):
        predicates(SCHEMA, (name, "=", "Oslo"))


def test_names_that_are_no_text_mean_the_columns_that_a_frame_with_them_makes() -> None:
    """``to_dict("records")`` of a frame without a header raised a bare KeyError, and a session lost the neighbours."""

    async def work() -> None:
        memory = MemoryTable(one_column("1", "string"))
        table = memory.table
        frame = pd.DataFrame({"id": [1, 2], 1: ["a", "b"]})
        assert (await table.upsert(frame.to_dict("records"))).written == 2
        async with table.session() as session:
            await session.upsert((5, "x"))
            await session.upsert({"id": 6, 1: "y"})
            await session.upsert((7, "z"))
        assert memory.held_rows() == [5]
        result = await table.upsert([{"id": 8, 1: "a", "1": "b"}, {"id": 9, 2: "a"}, (10, "c")], errors="return")
        assert (result.written, [failure.row for failure in result.failures]) == (1, [0, 1])
        assert "the same as text" in result.failures[0].reason and "no column '2'" in result.failures[1].reason

    asyncio.run(work())
