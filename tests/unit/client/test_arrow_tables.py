"""Arrow tables as input: lists of tables with different columns, tables without rows, and the failures of many rows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from stelae.client import RowsFailed
from stelae.client.arguments import BadArgument
from stelae.client.failures import FAILURES_MAX
from stelae.spi.errors import SchemaMismatch
from stelae.spi.write import OpKind
from tests.unit.client.tablets import MemoryTable, failures, one_column

HASHED = {"hash": [{"columns": ["sensor"], "buckets": 4}]}


def run(work: Callable[[MemoryTable], Awaitable[Any]]) -> None:
    async def made() -> None:
        await work(MemoryTable(partition=HASHED))

    asyncio.run(made())


def keys(*numbers: int, **columns: list[Any]) -> pa.Table:
    return pa.table({"sensor": pa.array(numbers, pa.int32()), "minute": [0] * len(numbers), **columns})


def test_the_tables_of_a_list_may_have_different_columns_and_take_effect_in_their_order() -> None:
    async def work(memory: MemoryTable) -> None:
        await memory.table.insert(keys(1, 2, celsius=[1.0, 2.0], note=["a", "b"]))
        result = await memory.table.upsert(
            [keys(1, 3, note=["c", "d"]), keys(2, 1, celsius=[9.0, 8.0]).to_batches()[0], keys(1, celsius=[7.0])]
        )
        assert (result.rows, result.failed) == (5, 0)
        found = {row["sensor"]: (row["celsius"], row["note"]) for row in await memory.table.scan().to_pylist()}
        assert found == {1: (7.0, "c"), 2: (9.0, "b"), 3: (None, "d")}

    run(work)


def test_failures_are_counted_through_all_tables_of_a_list() -> None:
    async def work(memory: MemoryTable) -> None:
        result = await memory.table.update([keys(1, 2, celsius=[1.0, 2.0]), keys(3, note=["x"])], errors="return")
        assert [failure.row for failure in result.failures] == [0, 1, 2]

    run(work)


@pytest.mark.parametrize(
    ("table", "fact"),
    [
        (keys(celsiuss=[]), "no column 'celsiuss'"),
        (keys(note=pa.array([], pa.int64())), "column 'note': expected string"),
        (pa.table({"sensor": pa.array([], pa.int32())}), "needs values for the columns 'minute'"),
    ],
)
def test_the_columns_of_a_table_without_rows_are_checked(table: pa.Table, fact: str) -> None:
    """A job of Spark checks its columns with such a table on the driver, and no task should have to find them."""

    async def work(memory: MemoryTable) -> None:
        for data in (table, pa.RecordBatch.from_pylist([], table.schema)):
            with pytest.raises(SchemaMismatch, match=fact):
                await memory.table.insert(data)
        assert (await memory.table.insert(keys(celsius=pa.array([], pa.float64())))).rows == 0

    run(work)


@pytest.mark.parametrize(("failures_max", "kept"), [(None, FAILURES_MAX), (3, 3), (0, 0), (5000, 1500)])
def test_a_result_has_as_many_failures_as_are_asked_for(failures_max: int | None, kept: int) -> None:
    async def work(memory: MemoryTable) -> None:
        given: dict[str, Any] = {} if failures_max is None else {"failures_max": failures_max}
        result = await memory.table.write(OpKind.UPDATE, keys(*range(1500)), errors="return", **given)
        assert (result.failed, len(result.failures), result.counts) == (1500, kept, {"NOT_FOUND": 1500})
        with pytest.raises(RowsFailed, match=f"and {1500 - min(kept, 5)} more"):
            await memory.table.write(OpKind.UPDATE, keys(*range(1500)), **given)
        with pytest.raises(BadArgument, match="failures_max"):
            await memory.table.write(OpKind.UPDATE, keys(1), failures_max=-1)

    run(work)


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("column", ["decimal(4,2)", "decimal(10,2)", "decimal(38,30)", "decimal(38,0)"])
def test_whole_numbers_of_every_width_are_decimals_if_they_fit(kind: str, column: str) -> None:
    """Arrow refused the type of the column, whatever its values, and its own error ended the write."""

    async def work() -> None:
        memory = MemoryTable(one_column("value", column))
        values = pa.array([0, 99, None], kind)
        await memory.table.insert(pa.table({"id": [0, 1, 2], "value": values}))
        await memory.table.insert(pa.table({"id": [3, 4, 5], "value": values.dictionary_encode()}))
        found = [row["value"] for row in await memory.table.scan(order="key").to_pylist()]
        assert found == [Decimal(0), Decimal(99), None] * 2

    asyncio.run(work())


def test_a_whole_number_with_too_many_digits_for_a_decimal_fails_its_row_alone() -> None:
    async def work() -> None:
        memory = MemoryTable(one_column("value", "decimal(4,2)"))
        values = pa.array([99, 100, (1 << 64) - 1, 7], pa.uint64())
        with pytest.raises(RowsFailed) as error:
            await memory.table.insert(pa.table({"id": [0, 1, 2, 3], "value": values}))
        assert failures(error) == [(1, "BAD_VALUE"), (2, "BAD_VALUE")]
        assert "expected decimal(4,2) or null, got int 100 (of uint64)" in error.value.failures[0].reason
        assert memory.held_rows() == [2]

    asyncio.run(work())
