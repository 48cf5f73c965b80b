"""A table that is altered while it is open: writes look it up again, and are sent again as it is by then."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from stelae.client.failures import RowsFailed
from stelae.client.locations import NoSuchTable, TableLocation, TabletLocation
from stelae.client.table import AsyncTable
from stelae.partition.plain import from_plain
from stelae.rows.operations import Operation
from stelae.spi.errors import SchemaMismatch
from stelae.spi.schema import Column, Schema
from stelae.spi.write import OpKind, OpResult, refused
from tests.unit.client.tablets import SCHEMA, Clock, MemoryTablet, failures

UNIT = Column(id=5, name="unit", type="string", default="C")
WITH_UNIT = Schema(2, (*SCHEMA.columns, UNIT), SCHEMA.key)
WITHOUT_NOTE = Schema(2, SCHEMA.columns[:-1], SCHEMA.key)
RENAMED = Schema(
    2, (*SCHEMA.columns[:2], msgspec.structs.replace(SCHEMA.columns[2], name="degrees"), SCHEMA.columns[3]), SCHEMA.key
)
ROW = {"sensor": 1, "minute": 0, "celsius": 20.5, "note": "-"}


class OfAnotherVersion(MemoryTablet):
    """The handle of a tablet that was opened before an alteration: its writes are refused, and have no effect."""

    def send(self, encoded: Operation, timeout_s: float) -> asyncio.Future[OpResult]:
        future: asyncio.Future[OpResult] = asyncio.get_running_loop().create_future()
        future.set_result(refused(SchemaMismatch("rows were made for schema version 1; the tablet has version 2")))
        return future


def located(schema: Schema, tablets: Sequence[MemoryTablet], partition: Any = None) -> TableLocation:
    where = tuple(TabletLocation(tablet.tablet_id) for tablet in tablets)
    return TableLocation("readings", schema, from_plain(schema, partition or {}), where, "id-1")


class Altered:
    """A table that was opened before it was altered.

    Args:
        after: its schema by now; the tablet is another object then, as a client opens it anew."""

    def __init__(self, after: Schema, before: MemoryTablet | None = None, *, gone: bool = False) -> None:
        clock = Clock()
        self.before = before or OfAnotherVersion("t-0", SCHEMA, clock)
        self.now = MemoryTablet("t-0", after, clock)
        self.looks = 0
        self.gone = gone
        self.after = located(after, [self.now])
        self.table = AsyncTable(located(SCHEMA, [self.before]), [self.before], ["x:1"], clock.now, self.reopen)

    async def reopen(self, before: TableLocation, timeout_s: float) -> tuple[TableLocation, Sequence[MemoryTablet]]:
        self.looks += 1
        if self.gone:
            raise NoSuchTable("readings", [])
        return self.after, [self.now]


def test_rows_are_sent_again_as_the_table_is_by_then() -> None:
    async def run() -> None:
        world = Altered(WITH_UNIT)
        await world.table.insert([ROW, {**ROW, "minute": 1}])
        assert world.looks == 1 and list(world.table.columns)[-1] == "unit"
        assert [row["unit"] for row in await world.table.scan().to_pylist()] == ["C", "C"]
        await world.table.insert([{**ROW, "minute": 2, "unit": "F"}])
        assert world.looks == 1

    asyncio.run(run())


def test_a_renamed_column_keeps_what_was_written_under_its_old_name() -> None:
    async def run() -> None:
        world = Altered(RENAMED)
        await world.table.upsert([ROW])
        assert [row["degrees"] for row in await world.table.scan().to_pylist()] == [20.5]

    asyncio.run(run())


def test_values_of_a_dropped_column_fail_and_say_so() -> None:
    async def run() -> None:
        world = Altered(WITHOUT_NOTE)
        with pytest.raises(RowsFailed) as error:
            await world.table.insert([ROW])
        assert failures(error) == [(0, "SCHEMA_MISMATCH")]
        await world.table.insert([{"sensor": 1, "minute": 0, "celsius": 1.0}])

    asyncio.run(run())


def test_a_scan_names_the_column_that_was_dropped_since_it_was_described() -> None:
    """The tablet knows it by id, and said that columns (1, 4) are not distinct columns of schema version 2."""

    async def run() -> None:
        for columns, where in ((["note"], None), (["sensor"], ("note", "=", "-")), (None, None)):
            world = Altered(WITHOUT_NOTE, MemoryTablet("t-0", SCHEMA, Clock()))
            await world.table.insert([ROW])
            scan = world.table.scan(columns, where)
            world.before.change_schema(WITHOUT_NOTE)
            with pytest.raises(SchemaMismatch, match="column 'note' was dropped from the table; it has: sensor, min"):
                await scan.to_pylist()
            assert await world.table.scan().to_pylist() == []

    asyncio.run(run())


def test_what_a_tablet_refuses_for_another_reason_is_said_as_it_was() -> None:
    async def run() -> None:
        world = Altered(WITH_UNIT)
        world.before.error = SchemaMismatch("of its own")
        world.now.error = world.before.error
        with pytest.raises(SchemaMismatch, match="of its own"):
            await world.table.scan(["note"]).to_pylist()

    asyncio.run(run())


def test_calls_at_the_same_time_look_the_table_up_once() -> None:
    async def run() -> None:
        world = Altered(WITH_UNIT)
        await asyncio.gather(*(world.table.insert([{**ROW, "minute": n}]) for n in range(8)))
        assert world.looks == 1 and len(await world.table.scan().to_pylist()) == 8

    asyncio.run(run())


def test_a_session_goes_on_and_the_later_of_two_rows_wins() -> None:
    async def run() -> None:
        world = Altered(WITH_UNIT)
        async with world.table.session() as session:
            await session.apply(OpKind.UPSERT, ROW)
            await session.apply(OpKind.UPSERT, {**ROW, "celsius": 21.5})
        assert [row["celsius"] for row in await world.table.scan().to_pylist()] == [21.5]

    asyncio.run(run())


def test_a_table_that_is_as_it_was_is_looked_up_once_and_its_refusal_stands() -> None:
    async def run() -> None:
        world = Altered(SCHEMA)
        world.after = located(SCHEMA, [world.before])
        with pytest.raises(RowsFailed) as error:
            await world.table.insert([ROW])
        assert failures(error) == [(0, "SCHEMA_MISMATCH")] and world.looks == 1

    asyncio.run(run())


def test_a_table_that_is_gone_says_so() -> None:
    async def run() -> None:
        with pytest.raises(NoSuchTable):
            await Altered(WITH_UNIT, gone=True).table.insert([ROW])

    asyncio.run(run())


def test_a_row_of_a_range_that_was_added_meanwhile_finds_its_tablet() -> None:
    def ranges(*given: tuple[int, int]) -> dict[str, Any]:
        return {"range": {"columns": ["sensor"], "ranges": [{"from": [one], "until": [two]} for one, two in given]}}

    async def run() -> None:
        clock = Clock()
        first, second = MemoryTablet("t-0", SCHEMA, clock), MemoryTablet("t-1", SCHEMA, clock)
        before = located(SCHEMA, [first], ranges((0, 10)))
        after = located(SCHEMA, [first, second], ranges((0, 10), (10, 20)))

        async def reopen(_: TableLocation, timeout_s: float) -> tuple[TableLocation, Sequence[MemoryTablet]]:
            return after, [first, second]

        table = AsyncTable(before, [first], ["x:1"], clock.now, reopen)
        await table.insert([ROW, {**ROW, "sensor": 15}])
        assert [len(t.operations) for t in (first, second)] == [1, 1]
        with pytest.raises(RowsFailed) as error:
            await table.insert([{**ROW, "sensor": 25}])
        assert failures(error) == [(0, "NO_PARTITION")]

    asyncio.run(run())
