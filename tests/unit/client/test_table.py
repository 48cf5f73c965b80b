"""Tables of several tablets: where rows go, what reads see, and how a write of many batches stays in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from stelae.client import RowsFailed, WriteResult
from stelae.client.failures import UNKNOWN_OUTCOME
from stelae.client.row_input import BATCH_ROWS_MAX
from stelae.client.table_writer import PLANNED_WRITES_MAX
from stelae.client.times import LOGICAL_BITS, hybrid, to_datetime
from stelae.host import hybrid_clock
from stelae.partition.partitioning import NoPartition
from stelae.rows.operation_encoding import ROW_FORM_ROWS_MAX
from stelae.spi.errors import CallerError, DeadlineExceeded, SchemaMismatch, Unavailable
from stelae.spi.write import OpKind, StaleSequence
from tests.unit.client.tablets import MemoryTable, failures, one_column
from tests.unit.partition.tables import partition_of_key

HASHED = {"hash": [{"columns": ["sensor"], "buckets": 4}]}
RANGED = {"range": {"columns": ["sensor"], "ranges": [{"from": [0], "until": [10]}, {"from": [20]}]}}


def run(work: Callable[[MemoryTable], Awaitable[Any]], **fields: Any) -> Any:
    """Carry out ``work`` on a table of its own."""

    async def carried_out() -> Any:
        return await work(MemoryTable(**fields))

    return asyncio.run(carried_out())


def rows(count: int, sensor: int = 0) -> list[dict[str, Any]]:
    return [{"sensor": sensor + n % 8, "minute": n, "celsius": n / 2} for n in range(count)]


def test_rows_go_to_the_tablets_of_their_partitions_and_come_back_whole() -> None:
    async def work(memory: MemoryTable) -> None:
        result = await memory.table.insert(rows(100))
        assert (result.rows, result.written, result.failures) == (100, 100, ())
        places = [partition_of_key(memory.table.partitioning, (row["sensor"], row["minute"])) for row in rows(100)]
        assert memory.held_rows() == [places.count(n) for n in range(4)]
        found = await memory.table.scan(["sensor", "minute", "celsius"], order="key").to_pylist()
        assert found == sorted(rows(100), key=lambda row: (row["sensor"], row["minute"]))

    run(work, partition=HASHED)


def test_failures_of_several_tablets_carry_the_rows_of_the_call() -> None:
    async def work(memory: MemoryTable) -> None:
        await memory.table.insert([row for row in rows(40) if row["minute"] % 3 == 0])
        with pytest.raises(RowsFailed) as caught:
            await memory.table.insert(rows(40))
        assert failures(caught) == [(n, "ALREADY_PRESENT") for n in range(0, 40, 3)]
        assert sum(memory.held_rows()) == 40

    run(work, partition=HASHED)


def test_every_kind_of_write_does_what_it_says() -> None:
    async def work(memory: MemoryTable) -> None:
        table = memory.table
        await table.insert({"sensor": 1, "minute": 1, "celsius": 1.0, "note": "first"})
        await table.upsert({"sensor": 1, "minute": 1, "celsius": 2.0})
        assert await table.get((1, 1)) == {"sensor": 1, "minute": 1, "celsius": 2.0, "note": "first"}
        await table.update({"sensor": 1, "minute": 1, "note": "second"})
        assert await table.get({"minute": 1, "sensor": 1}) == {
            "sensor": 1,
            "minute": 1,
            "celsius": 2.0,
            "note": "second",
        }
        for kind in (OpKind.UPDATE, OpKind.DELETE):
            missing = {"sensor": 9, "minute": 9} | ({"note": "x"} if kind is OpKind.UPDATE else {})
            with pytest.raises(RowsFailed, match="NOT_FOUND: there is no row with this key"):
                await table.write(kind, missing)
        await table.insert_ignore({"sensor": 1, "minute": 1, "note": "third"})
        await table.update_ignore({"sensor": 9, "minute": 9, "note": "x"})
        await table.delete_ignore({"sensor": 9, "minute": 9})
        assert (await table.get((1, 1)) or {})["note"] == "second"
        await table.delete((1, 1))
        assert await table.get((1, 1)) is None

    run(work, partition=HASHED)


def test_a_row_in_a_gap_fails_alone_and_a_key_in_a_gap_is_refused() -> None:
    async def work(memory: MemoryTable) -> None:
        result = await memory.table.insert([{"sensor": n, "minute": 0} for n in (5, 15, 25)], errors="return")
        (failure,) = result.failures
        assert (failure.row, failure.code) == (1, "NO_PARTITION")
        assert failure.values == {"sensor": 15, "minute": 0}
        assert memory.held_rows() == [1, 1]
        with pytest.raises(NoPartition):
            await memory.table.get((15, 0))

    run(work, partition=RANGED)


def test_a_write_that_nobody_answers_in_time_has_an_unknown_outcome() -> None:
    async def work(memory: MemoryTable) -> None:
        memory.tablets[0].error = DeadlineExceeded("no leader accepted the write in time")
        result = await memory.table.insert(rows(3), errors="return")
        assert [f.code for f in result.failures] == ["UNKNOWN_OUTCOME"] * 3
        assert result.written == 0 and result.timestamp == 0

    run(work)


def test_rows_of_a_tablet_whose_schema_has_changed_are_refused_and_say_why() -> None:
    async def work(memory: MemoryTable) -> None:
        memory.tablets[0].error = SchemaMismatch("rows were made for schema version 1; the tablet has version 2")
        result = await memory.table.insert(rows(1), errors="return")
        assert result.failures[0].code == "SCHEMA_MISMATCH"
        assert "the tablet has version 2" in result.failures[0].reason

    run(work)


def frame(keys: list[int]) -> pa.Table:
    return pa.table({"id": pa.array(keys, pa.int64()), "value": pa.array(range(len(keys)), pa.int64())})


def test_batches_without_a_common_key_are_under_way_together() -> None:
    async def work(memory: MemoryTable) -> None:
        (tablet,) = memory.tablets
        tablet.held = True
        writing = asyncio.create_task(memory.table.upsert(frame([*range(6 * BATCH_ROWS_MAX)])))
        await settle(lambda: tablet.waiting == PLANNED_WRITES_MAX)
        tablet.held = False
        tablet.release()
        assert (await writing).written == 6 * BATCH_ROWS_MAX

    run(work, schema=one_column("value", "int64"))


def test_a_batch_that_shares_a_key_with_one_under_way_waits_for_it() -> None:
    """A retry could bring them the other way round, and the earlier value would win."""

    async def work(memory: MemoryTable) -> None:
        (tablet,) = memory.tablets
        tablet.held = True
        keys = [*range(BATCH_ROWS_MAX), *range(BATCH_ROWS_MAX, 2 * BATCH_ROWS_MAX - 1), 7]
        writing = asyncio.create_task(memory.table.upsert(frame(keys)))
        await settle(lambda: tablet.waiting == 1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert tablet.waiting == 1
        tablet.held = False
        tablet.release()
        await writing
        assert (await memory.table.get(7)) == {"id": 7, "value": 2 * BATCH_ROWS_MAX - 1}

    run(work, schema=one_column("value", "int64"))


async def settle(condition: Callable[[], bool]) -> None:
    """Give tasks their turns until a condition holds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


def test_rows_that_bring_different_columns_by_turns_travel_together_and_in_order() -> None:
    async def work(memory: MemoryTable) -> None:
        (tablet,) = memory.tablets
        tablet.held = True
        given = [{"id": n % 50, "value": n} if n % 2 else {"id": n % 50} for n in range(200)]
        writing = asyncio.create_task(memory.table.upsert(given))
        await settle(lambda: tablet.waiting == 200)
        tablet.held = False
        tablet.release()
        assert (await writing).written == 200
        assert (await memory.table.get(49))["value"] == 199
        assert (await memory.table.get(48))["value"] is None

    run(work, schema=one_column("value", "int64"))


def test_few_rows_travel_in_row_form_and_many_as_arrow() -> None:
    async def work(memory: MemoryTable) -> None:
        await memory.table.insert(rows(ROW_FORM_ROWS_MAX - 1))
        await memory.table.insert(rows(ROW_FORM_ROWS_MAX, sensor=100))
        first, second = (bytes(operation.rows) for operation in memory.tablets[0].operations)
        assert first[0] & 0xF0 in (0x90, 0xD0) and second[0] in (0xC5, 0xC6)

    run(work)


# -- times -----------------------------------------------------------------------------------------


def test_an_older_time_is_read_as_it_was() -> None:
    async def work(memory: MemoryTable) -> None:
        table = memory.table
        before = (await table.insert([{"sensor": n, "minute": 0, "celsius": 1.0} for n in range(8)])).timestamp
        await table.update([{"sensor": n, "minute": 0, "celsius": 2.0} for n in range(8)])
        await table.delete((3, 0))
        assert {row["celsius"] for row in await table.scan(at=before).to_pylist()} == {1.0}
        assert await table.scan(at=before).count() == 8
        assert (await table.get((3, 0), at=before) or {})["celsius"] == 1.0
        assert await table.scan().count() == 7
        assert await table.scan(at=table.now()).count() == 7

    run(work, partition=HASHED)


def test_reads_of_ones_own_writes_ask_for_the_time_of_the_last_one() -> None:
    async def work(memory: MemoryTable) -> None:
        await memory.table.scan(own_writes=True).to_pylist()
        written = (await memory.table.insert(rows(1))).timestamp
        await memory.table.scan(own_writes=True).to_pylist()
        bounds = [at_least for _, at, at_least in memory.tablets[0].pages if at is None]
        assert bounds == [0, written]

    run(work)


def test_a_staleness_bound_asks_for_a_time_so_far_back() -> None:
    async def work(memory: MemoryTable) -> None:
        memory.clock.us = 60_000_000
        await memory.table.scan(staleness_s=5).to_pylist()
        ((_, _, at_least),) = memory.tablets[0].pages
        assert at_least is not None
        assert to_datetime(at_least) == datetime(1970, 1, 1, 0, 0, 55, 2, tzinfo=UTC), "by the second look at the clock"

    run(work)


def test_bounds_count_from_the_beginning_of_a_scan_and_not_from_its_description() -> None:
    """A scan that was described before a write could miss it, and one described an hour ago be an hour older."""

    async def work(memory: MemoryTable) -> None:
        memory.clock.us = 60_000_000
        own, stale = memory.table.scan(own_writes=True), memory.table.scan(staleness_s=5)
        written = (await memory.table.insert(rows(1))).timestamp
        await own.to_pylist()
        memory.clock.us = 90_000_000
        await stale.to_pylist()
        (token,) = await own.tokens()
        assert await own.count() == 1
        bounds = [at_least for _, at, at_least in memory.tablets[0].pages if at is None]
        assert bounds == [written, hybrid_clock.timestamp(85_000_001), written]
        assert token.at_least == written

    run(work)


def test_hybrid_timestamps_are_those_of_the_nodes_clocks() -> None:
    assert LOGICAL_BITS == hybrid_clock.LOGICAL_BITS
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=2)))
    assert to_datetime(hybrid(moment)) == moment
    # Everything of that microsecond is seen.
    assert hybrid(moment) + 1 == hybrid_clock.timestamp(hybrid_clock.physical_us(hybrid(moment)) + 1)


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"at": 1, "own_writes": True}, "give at most one"),
        ({"at": 0}, "timestamps are from 1"),
        ({"at": 1 << 63}, "timestamps are from 1"),
        ({"at": "yesterday"}, "not str 'yesterday'"),
        ({"staleness_s": -1}, "staleness_s must be a number of seconds from 0 to 1e.09, not int -1"),
        ({"limit": -1}, "limit must be a whole number from 0, or None for all rows, not int -1"),
        ({"order": "sideways"}, "known: any, key, key_descending"),
        ({"columns": ["celsus"]}, "did you mean 'celsius'"),
        ({"columns": ["note", "note"]}, "different ones"),
        ({"columns": []}, "one or more"),
        ({"start": (1, 2, 3)}, "values for the first of sensor, minute"),
        ({"start": "x"}, "expected int32, got str 'x'"),
        ({"where": ("celsus", "=", 1)}, "no column 'celsus'"),
    ],
)
def test_options_of_a_scan_that_make_no_sense_are_refused(options: dict[str, Any], fact: str) -> None:
    async def work(memory: MemoryTable) -> None:
        with pytest.raises(CallerError, match=fact):
            memory.table.scan(**options)

    run(work)


@pytest.mark.parametrize("key", [1, (1,), (1, 2, 3), {"sensor": 1}, {"sensor": 1, "minute": 2, "note": "x"}, (1, "x")])
def test_a_key_that_is_none_is_refused(key: Any) -> None:
    async def work(memory: MemoryTable) -> None:
        with pytest.raises(SchemaMismatch):
            await memory.table.get(key)

    run(work)


def test_a_tablet_that_cannot_serve_ends_the_scan_with_its_error() -> None:
    async def work(memory: MemoryTable) -> None:
        memory.tablets[2].error = Unavailable("no node could serve it in time")
        with pytest.raises(Unavailable):
            await memory.table.scan().to_arrow()
        with pytest.raises(Unavailable):
            await memory.table.scan(order="key").to_arrow()

    run(work, partition=HASHED)


def test_a_time_of_pandas_is_local_time_too_and_a_result_says_where_its_time_is() -> None:
    naive = datetime(2026, 6, 1, 12, 30, 15, 250)
    assert hybrid(pd.Timestamp(naive)) == hybrid(naive)
    assert hybrid(pd.Timestamp("2026-06-01T12:30:15.000250123Z")) == hybrid(naive.replace(tzinfo=UTC))
    with pytest.raises(CallerError, match=r"not WriteResult .*; give its \.timestamp"):
        hybrid(WriteResult(rows=0, failed=0, failures=(), timestamp=1))  # type: ignore[arg-type]


def test_a_table_shows_its_columns_and_its_key() -> None:
    async def work(memory: MemoryTable) -> None:
        assert repr(memory.table) == (
            "<table readings: sensor int32, minute int64, celsius double, note string; key sensor, minute>"
        )

    run(work)


def test_a_result_that_has_expired_is_an_unknown_outcome() -> None:
    """Whether the operation was applied before is not known: a caller must not take the row for unwritten."""

    async def run() -> None:
        memory = MemoryTable(one_column("value", "double"), None, "t")
        memory.tablets[0].refusal = StaleSequence("sequence number 5 is below 9: its result has expired")
        with pytest.raises(RowsFailed, match="may be written too") as raised:
            await memory.table.upsert({"id": 1, "value": 1.0})
        (failure,) = raised.value.failures
        assert (failure.code, "has expired" in failure.reason) == (UNKNOWN_OUTCOME, True)

    asyncio.run(run())
