"""A table that is altered while it is open: writes look it up again, and are sent again as it is by then."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from stelae.client.failures import RowsFailed
from stelae.client.locations import NoSuchTable, TableLocation, TabletLocation
from stelae.client.row_input import BATCH_ROWS_MAX
from stelae.client.table import AsyncTable
from stelae.client.table_writer import PLANNED_WRITES_MAX
from stelae.partition.plain_partitioning import partition_schema_from_plain
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.rows.operation_encoding import Operation
from stelae.spi.errors import SchemaMismatch, StelaeError, Unavailable
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

    def send(self, encoded: Operation, timeout_s: float, *, follows: bool = False) -> asyncio.Future[OpResult]:
        future: asyncio.Future[OpResult] = asyncio.get_running_loop().create_future()
        future.set_result(refused(SchemaMismatch("rows were made for schema version 1; the tablet has version 2")))
        return future


def located(schema: Schema, tablets: Sequence[MemoryTablet], partition: Any = None) -> TableLocation:
    where = tuple(TabletLocation(tablet.tablet_id) for tablet in tablets)
    return TableLocation("readings", schema, partition_schema_from_plain(schema, partition or {}), where, "id-1")


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


@pytest.mark.parametrize("after", [RENAMED, WITH_UNIT], ids=["renamed", "added"])
def test_an_epoch_that_is_repeated_over_an_alteration_counts_its_inserts_as_written(after: Schema) -> None:
    """The rows that were found have the new name of a column. The old name was looked for in them: KeyError."""

    async def run() -> None:
        first, again = Altered(after), Altered(after)
        again.now, again.after = first.now, first.after
        await first.table.epoch("load", 1).insert([ROW])
        changed = {**ROW, "celsius": 21.0}
        result = await again.table.epoch("load", 1).insert([ROW, {**ROW, "minute": 1}])
        assert (result.failed, result.written) == (0, 2)
        again = Altered(after)
        again.now, again.after = first.now, first.after
        result = await again.table.epoch("load", 1).insert([changed], errors="return")
        assert result.counts == {"ALREADY_PRESENT": 1}

    asyncio.run(run())


@pytest.mark.parametrize("problem", [Unavailable("nobody answers"), SchemaMismatch("it is found with version 2")])
def test_rows_are_told_one_by_one_when_the_table_cannot_be_looked_up_again(problem: StelaeError) -> None:
    """A call of many batches raised in the middle, and nobody knew which rows were written."""

    async def run() -> None:
        world = Altered(WITH_UNIT)

        async def reopen(before: TableLocation, timeout_s: float) -> Any:
            raise problem

        world.table._reopen = reopen
        result = await world.table.insert([ROW, {**ROW, "minute": 1}], errors="return")
        assert [(failure.row, failure.code) for failure in result.failures] == [(n, "SCHEMA_MISMATCH") for n in (0, 1)]
        assert str(problem) in result.failures[0].reason

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


def test_a_row_whose_range_could_not_be_looked_up_has_the_code_of_the_lookup() -> None:
    """It had NO_PARTITION, as if the table had no such range, and a program dropped it."""

    async def run() -> None:
        clock = Clock()
        tablet = MemoryTablet("t-0", SCHEMA, clock)

        async def reopen(_: TableLocation, timeout_s: float) -> Any:
            raise Unavailable("no master answered in time")

        table = AsyncTable(located(SCHEMA, [tablet], spans((0, 10))), [tablet], ["x:1"], clock.now, reopen)
        result = await table.insert([ROW, {**ROW, "sensor": 15}], errors="return")
        assert [(failure.row, failure.code) for failure in result.failures] == [(1, "UNAVAILABLE")]
        assert "could not be looked up again: no master answered in time" in result.failures[0].reason

    asyncio.run(run())


def spans(*given: tuple[int, int]) -> dict[str, Any]:
    """A partitioning by ranges of ``sensor``."""
    return {"range": {"columns": ["sensor"], "ranges": [{"from": [one], "until": [two]} for one, two in given]}}


class Regrown:
    """A table of one range, below which another client adds one: what was its first tablet is its second one."""

    def __init__(self) -> None:
        clock = Clock()
        self.low, self.high = MemoryTablet("low", SCHEMA, clock), MemoryTablet("high", SCHEMA, clock)
        after = located(SCHEMA, [self.low, self.high], spans((0, 10), (10, 20)))

        async def found(_: TableLocation, timeout_s: float) -> tuple[TableLocation, Sequence[MemoryTablet]]:
            return after, [self.low, self.high]

        before = located(SCHEMA, [self.high], spans((10, 20)))
        self.table = AsyncTable(before, [self.high], ["x:1"], clock.now, found, found)


def test_what_was_planned_before_the_ranges_changed_goes_where_it_was_planned_to_go() -> None:
    """Waves wait for room while a scan of the same table object learns of a range below theirs."""

    async def run() -> None:
        world, count = Regrown(), (PLANNED_WRITES_MAX + 2) * BATCH_ROWS_MAX
        columns = {"sensor": pa.array([10] * count, pa.int64()), "minute": pa.array(range(count), pa.int64())}
        frame = pa.table({**columns, "celsius": [20.5] * count, "note": ["-"] * count})
        world.high.held = True
        writing = asyncio.ensure_future(world.table.upsert(frame))
        while world.high.waiting < PLANNED_WRITES_MAX:
            await asyncio.sleep(0)
        assert await world.table.refresh()
        world.high.held = False
        world.high.release()
        assert (await writing).written == count
        assert not world.low.operations, "keys from 10 on have no place below"
        assert await world.table.get((10, count - 1)) is not None

    asyncio.run(run())


def test_keys_are_read_where_they_were_looked_for_though_the_ranges_change_meanwhile() -> None:
    async def run() -> None:
        world = Regrown()
        await world.table.insert([{**ROW, "sensor": 10, "minute": minute} for minute in range(40)])
        reading = asyncio.ensure_future(world.table.get_many([(10, minute) for minute in range(40)]))
        while not world.high.lookups:
            await asyncio.sleep(0)
        assert await world.table.refresh()
        assert None not in await reading

    asyncio.run(run())


def test_a_key_is_read_again_where_its_range_has_gone_and_come() -> None:
    """Its tablet is another: whoever read meanwhile may have been the one who learned it."""

    async def run() -> None:
        clock = Clock()
        old, new = MemoryTablet("old", SCHEMA, clock), MemoryTablet("new", SCHEMA, clock)
        old.error = NoSuchTablet("no tablet 'old' on this node")
        after = located(SCHEMA, [new], spans((0, 20)))

        async def found(_: TableLocation, timeout_s: float) -> tuple[TableLocation, Sequence[MemoryTablet]]:
            return after, [new]

        table = AsyncTable(located(SCHEMA, [old], spans((0, 20))), [old], ["x:1"], clock.now, found, None)
        writer = AsyncTable(after, [new], ["x:1"], clock.now)
        await writer.insert([ROW])
        found_rows = await asyncio.gather(table.get((1, 0)), table.get((1, 0)), table.get_many([(1, 0)]))
        assert [row is not None for row in (*found_rows[:2], *found_rows[2])] == [True] * 3

    asyncio.run(run())
