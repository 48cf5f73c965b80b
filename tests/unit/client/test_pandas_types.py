"""What a frame of pandas has of a table's values, and that they are the same when they are written back."""

from __future__ import annotations

import asyncio
import math
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest

from stelae.client import RowsFailed
from stelae.rows.plain_schema import schema_from_plain
from tests.unit.client.tablets import MemoryTable, failures, one_column

WIDE = (1 << 53) + 1
SCHEMA = schema_from_plain(
    {
        "columns": [
            {"name": "id", "type": "int64"},
            {"name": "sure", "type": "bool"},
            {"name": "n", "type": "int64", "nullable": True},
            {"name": "small", "type": "int8", "nullable": True},
            {"name": "ok", "type": "bool", "nullable": True},
        ],
        "key": ["id"],
    }
)
ROWS: list[tuple[Any, ...]] = [(1, True, WIDE, 1, True), (WIDE, False, None, None, None), (3, True, -WIDE, -1, False)]
DTYPES = {"id": "int64", "sure": "bool", "n": "Int64", "small": "Int8", "ok": "boolean"}


async def filled(rows: list[tuple[Any, ...]]) -> MemoryTable:
    memory = MemoryTable(SCHEMA)
    if rows:
        await memory.table.insert(rows)
    return memory


def test_whole_numbers_among_nulls_are_themselves_and_so_they_are_when_written_back() -> None:
    """9007199254740993 became 9007199254740992.0 for the sake of a null, and was stored when the frame was."""

    async def work() -> None:
        memory, other = await filled(ROWS), MemoryTable(SCHEMA)
        frame = await memory.table.scan(order="key").to_pandas()
        assert {name: str(kind) for name, kind in frame.dtypes.items()} == DTYPES
        assert frame["n"].tolist() == [WIDE, -WIDE, pd.NA]
        await other.table.upsert(frame)
        for _, row in frame.iterrows():
            await other.table.update(row.to_dict())
        assert await other.table.scan(order="key").to_pylist() == await memory.table.scan(order="key").to_pylist()

    asyncio.run(work())


@pytest.mark.parametrize("rows", [[], ROWS[:1], ROWS[1:2]], ids=["no rows", "no null", "only null"])
def test_the_types_of_a_frame_are_those_of_the_columns_whatever_the_rows(rows: list[tuple[Any, ...]]) -> None:
    async def work() -> None:
        scan = (await filled(rows)).table.scan()
        assert {name: str(kind) for name, kind in (await scan.to_pandas()).dtypes.items()} == DTYPES

    asyncio.run(work())


def test_options_choose_other_types() -> None:
    async def work() -> None:
        scan = (await filled(ROWS)).table.scan(["id", "n"], order="key")
        arrow = await scan.to_pandas(types_mapper=pd.ArrowDtype)
        assert [str(kind) for kind in arrow.dtypes] == ["int64[pyarrow]", "int64[pyarrow]"]
        objects = await scan.to_pandas(integer_object_nulls=True)
        assert objects["n"].tolist() == [WIDE, -WIDE, None]
        rounding = await scan.to_pandas(types_mapper=None)
        assert [str(kind) for kind in rounding.dtypes] == ["int64", "float64"]
        categories = await scan.to_pandas(categories=["n", "nowhere"], split_blocks=True)
        assert [str(kind) for kind in categories.dtypes] == ["int64", "category"]
        assert categories["n"].tolist()[:2] == [WIDE, -WIDE] and categories["n"].isna().tolist()[2]

    asyncio.run(work())


@pytest.mark.parametrize("missing", [pd.NA, pd.NaT, Decimal("NaN"), None], ids=["NA", "NaT", "decimal", "None"])
def test_a_missing_number_among_objects_fails_its_row_alone_if_the_column_is_never_null(missing: Any) -> None:
    """An error of Arrow, such as "did not recognize Python value type", ended the write and named no row."""

    async def work() -> None:
        memory = MemoryTable(one_column("value", "double", nullable=False))
        values = pd.Series([1.5, missing, math.inf], dtype=object)
        with pytest.raises(RowsFailed) as error:
            await memory.table.insert(pd.DataFrame({"id": [0, 1, 2], "value": values}))
        assert failures(error) == [(1, "BAD_VALUE")]
        assert [row["value"] for row in await memory.table.scan(order="key").to_pylist()] == [1.5, math.inf]

    asyncio.run(work())


def test_the_least_time_of_pandas_is_no_day_and_fails_its_row_alone() -> None:
    """Its day begins before the least time, which Arrow could not compare with it: Arrow's error ended the write."""

    async def work() -> None:
        memory = MemoryTable(one_column("value", "date"))
        times = pd.Series([pd.Timestamp("2024-02-29"), pd.Timestamp.min, pd.NaT], dtype="datetime64[ns]")
        with pytest.raises(RowsFailed) as error:
            await memory.table.insert(pd.DataFrame({"id": [0, 1, 2], "value": times}))
        assert failures(error) == [(1, "BAD_VALUE")]
        assert memory.held_rows() == [2]

    asyncio.run(work())
