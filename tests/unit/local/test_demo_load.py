"""The load of the demo: what goes to which tablet, how much at once, and what is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import pytest

from stelae.client.failures import UNKNOWN_OUTCOME, RowFailure, WriteResult
from stelae.local.demo_load import CALLS_MAX, ROWS_PER_CALL_MAX, DemoLoad, TabletLoad
from stelae.local.demo_source import DemoSource
from stelae.partition.partitioning import Partitioning
from stelae.partition.plain_partitioning import partition_schema_from_plain
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import DeadlineExceeded
from tests.unit.partition.tables import partition_of_key

COLUMNS = ({"name": "id", "type": "int64"}, {"name": "text", "type": "string"})
SCHEMA = schema_from_plain({"columns": list(COLUMNS), "key": ["id"]})
PARTITIONING = Partitioning(SCHEMA, partition_schema_from_plain(SCHEMA, {"hash": [{"columns": ["id"], "buckets": 2}]}))


class FakeTable:
    """Keeps calls until they are answered, for each partition by itself."""

    def __init__(self) -> None:
        self.tablets: list[list[Call]] = [[], []]

    async def insert(self, rows: list[tuple[Any, ...]], *, errors: str, timeout_s: float) -> WriteResult:
        assert errors == "return" and timeout_s > 0
        (place,) = {partition_of_key(PARTITIONING, row[:1]) for row in rows}
        assert place is not None
        answer: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()
        self.tablets[place].append(Call(rows, answer))
        return await answer

    def open(self, place: int) -> list[Call]:
        return [call for call in self.tablets[place] if not call.answer.done()]

    async def answer_all(self, running: asyncio.Future[None]) -> None:
        while not running.done():
            await asyncio.sleep(0)
            for place in (0, 1):
                assert len(self.open(place)) <= CALLS_MAX
                for call in self.open(place):
                    call.answer.set_result(call.result())


class Call(NamedTuple):
    """One call of a load."""

    rows: list[tuple[Any, ...]]
    answer: asyncio.Future[WriteResult]

    def result(self, *failed: tuple[int, str]) -> WriteResult:
        failures = tuple(
            RowFailure(table="rows", kind="insert", row=row, code=code, reason="as the test says")
            for row, code in failed
        )
        return WriteResult(rows=len(self.rows), failed=len(failures), failures=failures, timestamp=1)


def source(count: int) -> DemoSource:
    rows = [(number, f"row {number}") for number in range(count)]
    return DemoSource(name="rows", table="rows", columns=COLUMNS, key=("id",), rows=rows)


def loaded(count: int, work: Callable[[DemoLoad, FakeTable], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        table = FakeTable()
        await work(DemoLoad(table, PARTITIONING, source(count), lambda: None), table)

    asyncio.run(run())


def test_each_row_goes_once_in_calls_of_one_tablet_in_order() -> None:
    async def work(load: DemoLoad, table: FakeTable) -> None:
        await table.answer_all(asyncio.ensure_future(load.run()))
        for place, calls in enumerate(table.tablets):
            sent = [row[0] for call in calls for row in call.rows]
            assert sent == [n for n in range(10_000) if partition_of_key(PARTITIONING, (n,)) == place]
            assert max(len(call.rows) for call in calls) <= ROWS_PER_CALL_MAX
        assert load.acked_count == sum(load.acked) == 10_000 and load.share == 1.0 and not load.problems

    loaded(10_000, work)


def test_a_row_that_is_refused_is_not_counted_and_told() -> None:
    async def work(load: DemoLoad, table: FakeTable) -> None:
        running = asyncio.ensure_future(load.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first = table.tablets[0][0]
        first.answer.set_result(first.result((0, "ALREADY_PRESENT")))
        await table.answer_all(running)
        assert load.acked_count == 200 - 1
        number = first.rows[0][0]
        assert not load.acked[number]
        assert load.problems == [f"row {number} of the source: ALREADY_PRESENT: as the test says"]

    loaded(200, work)


@pytest.mark.parametrize("as_result", [False, True])
def test_a_write_of_unknown_outcome_ends_the_load_and_wakes_who_waits_for_it(as_result: bool) -> None:
    async def work(load: DemoLoad, table: FakeTable) -> None:
        running = asyncio.ensure_future(load.run())
        waiting = asyncio.ensure_future(load.reached(0.5))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        call = table.open(1)[0]
        if as_result:
            call.answer.set_result(call.result((0, UNKNOWN_OUTCOME)))
        else:
            call.answer.set_exception(DeadlineExceeded("no leader"))
        with pytest.raises(DeadlineExceeded):
            await running
        await waiting
        assert not load.running

    loaded(200, work)


def test_a_tablet_that_is_slowed_down_sends_single_rows_and_then_goes_on_in_calls() -> None:
    load = TabletLoad(range(10_000), lambda: 0.0)
    load.slow_from = 25
    assert [len(load.take()) for _ in range(5)] == [12, 12, 1, 1, 1]
    load.slow_from = 10_000
    assert len(load.take()) == 12


def test_a_small_tablet_sends_no_larger_share_of_its_rows_while_it_is_slowed_down() -> None:
    long, short = (TabletLoad(range(count), lambda: 0.0) for count in (40_000, 250))  # type: ignore[arg-type]
    assert long.pause_s < short.pause_s
    for load in (long, short):
        assert 10.0 / load.pause_s < 0.1 * len(load.numbers)
