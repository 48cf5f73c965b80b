"""Bulk loads: which rows each round takes, and the comparison of what is there with what was loaded."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from stelae.client.failures import RowFailure, WriteResult
from stelae.spi.ids import TabletId
from stelae_bench.cluster_bulk import WRITERS, BulkLoad, differences
from stelae_bench.cluster_data import DataSet

HOUR_S = 3600.0


def rows(count: int) -> pa.Table:
    return pa.table({"id": range(count), "text": [f"row {n}" for n in range(count)]})


def data(count: int) -> DataSet:
    return DataSet(tablet_id=TabletId("t"), columns=(), key=("id",), rows=rows(count))


class Table:
    """Takes frames, and fails the one that holds a row; answers a few turns later."""

    def __init__(self, failing: int = -1) -> None:
        self.taken: list[int] = []
        self.sizes: list[int] = []
        self.open = self.open_max = 0
        self._failing = failing

    async def insert(self, frame: pa.Table, *, errors: str) -> WriteResult:
        assert errors == "return"
        self.open += 1
        self.open_max = max(self.open_max, self.open)
        await asyncio.sleep(0)
        self.open -= 1
        ids = frame.column("id").to_pylist()
        self.taken += ids
        self.sizes.append(len(ids))
        failures: tuple[RowFailure, ...] = ()
        if self._failing in ids:
            given: dict[str, Any] = {"table": "t", "kind": "insert", "row": 0, "code": "FULL", "reason": "full"}
            failures = (RowFailure(values=None, **given),)
        return WriteResult(rows=len(ids), failed=len(failures), failures=failures, timestamp=len(self.taken))


def load(table: Table, count: int, rounds: int, seconds: float = HOUR_S) -> tuple[BulkLoad, list[int]]:
    async def go() -> tuple[BulkLoad, list[int]]:
        one = BulkLoad(table, data(count), rounds)  # type: ignore[arg-type]
        return one, [(await one.round(seconds)).rows for _ in range(rounds)]

    return asyncio.run(asyncio.wait_for(go(), 20))


def test_rounds_share_the_rows_evenly_and_each_row_is_written_once() -> None:
    table = Table()
    one, shares = load(table, 100_003, 5)
    assert shares == [20_001, 20_001, 20_001, 20_000, 20_000]
    assert sorted(table.taken) == list(range(100_003))
    assert (len(one.loaded), one.timestamp, one.problems) == (100_003, 100_003, [])


@pytest.mark.parametrize("count", [40, 1_000_000])
def test_several_writers_are_at_work_however_small_the_load(count: int) -> None:
    table = Table()
    load(table, count, 1)
    assert table.open_max == WRITERS
    assert max(table.sizes) <= 16_384


def test_a_round_without_time_takes_nothing_and_leaves_the_rows_to_the_next() -> None:
    table = Table()

    async def go() -> list[int]:
        one = BulkLoad(table, data(100), 2)  # type: ignore[arg-type]
        return [(await one.round(seconds)).rows for seconds in (0.0, HOUR_S)]

    assert asyncio.run(asyncio.wait_for(go(), 20)) == [0, 100]


def test_warm_up_rows_are_loaded_and_belong_to_no_round() -> None:
    async def go() -> tuple[int, int]:
        one = BulkLoad(Table(), data(5000), 1)  # type: ignore[arg-type]
        await one.warm_up()
        return (await one.round(HOUR_S)).rows, len(one.loaded)

    assert asyncio.run(asyncio.wait_for(go(), 20)) == (4500, 5000)


def test_a_refused_row_is_a_problem_and_ends_the_load() -> None:
    table = Table(failing=3)
    one, _ = load(table, 1_000_000, 1)
    assert one.problems[0].startswith("1 rows were refused: ")
    assert len(table.taken) <= WRITERS * 16_384


def test_the_bytes_of_a_round_are_those_of_its_rows_alone() -> None:
    async def go() -> tuple[int, int]:
        one = BulkLoad(Table(), data(1000), 2)  # type: ignore[arg-type]
        first, second = await one.round(HOUR_S), await one.round(HOUR_S)
        return first.value_bytes + second.value_bytes, one.loaded.nbytes

    both, whole = asyncio.run(asyncio.wait_for(go(), 20))
    assert both == pytest.approx(whole, rel=0.01)


def test_equal_rows_in_another_order_and_with_other_column_types_do_not_differ() -> None:
    read = rows(100).take(pa.array([*range(99, -1, -1)])).select(["text", "id"])
    assert differences("t", rows(100), read.set_column(1, "id", read["id"].cast("int32")), ["id"]) == []


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (rows(99), "100 rows were acknowledged, but 99 were read"),
        (pa.concat_tables([rows(100), rows(1)]), "but 101 were read"),
        (rows(100).set_column(1, "text", [["row 0"] * 100]), "column 'text' differs from the loaded values"),
        (pa.concat_tables([rows(99), rows(1)]), "column 'id' differs from the loaded values"),
    ],
)
def test_missing_doubled_and_changed_rows_are_reported(read: pa.Table, words: str) -> None:
    assert words in differences("t", rows(100), read, ["id"])[0]
