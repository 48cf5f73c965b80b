"""The load of the demo: what goes to which tablet, how much at once, and what is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stelae.local.loading import CALLS_MAX, ROWS_PER_CALL_MAX, Load, LoadLane
from stelae.local.sources import DemoSource
from stelae.partition.partitioning import Partitioning
from stelae.partition.plain_partitioning import partition_schema_from_plain
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import DeadlineExceeded
from stelae.spi.write import OpKind, OpResult, RowCode, RowError

COLUMNS = ({"name": "id", "type": "int64"}, {"name": "text", "type": "string"})
SCHEMA = schema_from_plain({"columns": list(COLUMNS), "key": ["id"]})
PARTITIONING = Partitioning(SCHEMA, partition_schema_from_plain(SCHEMA, {"hash": [{"columns": ["id"], "buckets": 2}]}))


class FakeTablet:
    """Keeps calls until they are answered."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[tuple[Any, ...]], asyncio.Future[OpResult]]] = []

    def write(self, kind: OpKind, rows: list[tuple[Any, ...]], *, timeout_s: float) -> asyncio.Future[OpResult]:
        assert kind is OpKind.INSERT and timeout_s > 0
        call: asyncio.Future[OpResult] = asyncio.get_running_loop().create_future()
        self.calls.append((rows, call))
        return call

    @property
    def open(self) -> list[asyncio.Future[OpResult]]:
        return [call for _, call in self.calls if not call.done()]


def source(count: int) -> DemoSource:
    rows = [(number, f"row {number}") for number in range(count)]
    return DemoSource(name="rows", table="rows", columns=COLUMNS, key=("id",), rows=rows)


def loaded(count: int, work: Callable[[Load, list[FakeTablet]], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        tablets = [FakeTablet(), FakeTablet()]
        await work(Load(tablets, PARTITIONING, source(count), lambda: None), tablets)  # type: ignore[arg-type]

    asyncio.run(run())


def test_each_row_goes_once_to_the_tablet_that_its_key_belongs_to_in_order() -> None:
    async def work(load: Load, tablets: list[FakeTablet]) -> None:
        running = asyncio.ensure_future(load.run())
        while not running.done():
            await asyncio.sleep(0)
            for tablet in tablets:
                assert len(tablet.open) <= CALLS_MAX
                for call in tablet.open:
                    call.set_result(OpResult(timestamp=1))
        for place, tablet in enumerate(tablets):
            sent = [row[0] for rows, _ in tablet.calls for row in rows]
            assert sent == [n for n in range(10_000) if PARTITIONING.partition_of_key((n,)) == place]
            assert max(len(rows) for rows, _ in tablet.calls) <= ROWS_PER_CALL_MAX
        assert load.acked_count == sum(load.acked) == 10_000 and load.share == 1.0 and not load.problems

    loaded(10_000, work)


def test_a_row_that_is_refused_is_not_counted_and_told() -> None:
    async def work(load: Load, tablets: list[FakeTablet]) -> None:
        running = asyncio.ensure_future(load.run())
        await asyncio.sleep(0)
        (rows, first), (others, second) = tablets[0].calls[:2]
        first.set_result(OpResult(timestamp=1, errors=(RowError(0, RowCode.ALREADY_PRESENT, ""),)))
        second.set_result(OpResult(timestamp=0, refusal="OVERLOADED", detail="full"))
        while not running.done():
            for call in (*tablets[0].open, *tablets[1].open):
                call.set_result(OpResult(timestamp=1))
            await asyncio.sleep(0)
        assert load.acked_count == 200 - 1 - len(others)
        assert not load.acked[rows[0][0]]
        assert [text.partition(":")[0] for text in load.problems] == [f"row {rows[0][0]}", f"rows from {others[0][0]}"]

    loaded(200, work)


def test_a_write_of_unknown_outcome_ends_the_load_and_wakes_who_waits_for_it() -> None:
    async def work(load: Load, tablets: list[FakeTablet]) -> None:
        running = asyncio.ensure_future(load.run())
        waiting = asyncio.ensure_future(load.reached(0.5))
        await asyncio.sleep(0)
        tablets[1].open[0].set_exception(DeadlineExceeded("no leader"))
        with pytest.raises(DeadlineExceeded):
            await running
        await waiting
        assert not load.running

    loaded(200, work)


def test_a_lane_that_is_held_gives_single_rows_away_and_goes_on_in_calls() -> None:
    lane = LoadLane(FakeTablet(), range(10_000), lambda: 0.0)  # type: ignore[arg-type]
    lane.hold_from = 25
    assert [len(lane.take()) for _ in range(5)] == [12, 12, 1, 1, 1]
    lane.hold_from = 10_000
    assert len(lane.take()) == 12


def test_a_short_lane_gives_away_no_larger_share_of_its_rows_while_it_is_held() -> None:
    long, short = (LoadLane(FakeTablet(), range(count), lambda: 0.0) for count in (40_000, 250))  # type: ignore[arg-type]
    assert long.trickle_s < short.trickle_s
    for lane in (long, short):
        assert 10.0 / lane.trickle_s < 0.1 * len(lane.numbers)
