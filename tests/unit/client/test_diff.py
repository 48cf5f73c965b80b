"""Diffs: what changed between two times, as a stream that can be cut off and carried on like any scan."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from stelae.client import ScanToken
from stelae.client.page_streams import PAGES_AHEAD
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import CallerError, SchemaMismatch, TooOld
from tests.unit.client.tablets import PAGE_ROWS, MemoryTable

HASHED = {"hash": [{"columns": ["sensor"], "buckets": 3}]}
ROWS = [{"sensor": n % 5, "minute": n, "celsius": float(n), "note": None} for n in range(40)]
FLAGGED = {
    "columns": [
        {"name": "is_deleted", "type": "bool", "nullable": True},
        {"name": "id", "type": "int64"},
        {"name": "need", "type": "string"},
    ],
    "key": ["id"],
}

Rows = dict[tuple[int, int], dict[str, Any]]


def on_rows(work: Callable[[MemoryTable, int], Awaitable[Any]], partition: Any = HASHED) -> None:
    """Carry out ``work`` on a table that held ``ROWS`` at a time, and was changed since."""

    async def carried_out() -> None:
        memory = MemoryTable(partition=partition)
        table = memory.table
        await table.insert(ROWS)
        since = table.now()
        await table.update([{"sensor": n % 5, "minute": n, "celsius": -1.0} for n in range(0, 40, 4)])
        await table.delete([(n % 5, n) for n in range(1, 40, 4)])
        await table.insert([{"sensor": 1, "minute": n} for n in range(100, 110)])
        await table.delete([(1, n) for n in range(105, 110)])
        await work(memory, since)

    asyncio.run(carried_out())


def keyed(rows: list[dict[str, Any]]) -> Rows:
    return {(row["sensor"], row["minute"]): row for row in rows}


def applied(before: Rows, changes: list[dict[str, Any]]) -> Rows:
    """A table after changes were made to it, one by one."""
    after = dict(before)
    for change in changes:
        row = dict(change)
        if row.pop("is_deleted"):
            del after[row["sensor"], row["minute"]]
        else:
            after[row["sensor"], row["minute"]] = row
    return after


@pytest.mark.parametrize("order", ["any", "key"])
@pytest.mark.parametrize("partition", [None, HASHED])
def test_a_diff_makes_the_later_table_of_the_earlier_one(order: str, partition: Any) -> None:
    async def work(memory: MemoryTable, since: int) -> None:
        changes = await memory.table.diff(since, order=order).to_pylist()
        before = keyed(await memory.table.scan(at=since).to_pylist())
        assert applied(before, changes) == keyed(await memory.table.scan().to_pylist())
        assert len(changes) == 25 and [row["is_deleted"] for row in changes].count(True) == 10
        assert all(row["celsius"] is None for row in changes if row["is_deleted"])
        keys = [(row["sensor"], row["minute"]) for row in changes]
        assert order == "any" or keys == sorted(keys)

    on_rows(work, partition)


def test_one_diff_goes_on_from_the_other_without_a_gap() -> None:
    async def work(memory: MemoryTable, since: int) -> None:
        table, state = memory.table, keyed(await memory.table.scan(at=since).to_pylist())
        for n in range(5):
            await table.upsert([{"sensor": n, "minute": 7, "celsius": 7.0}])
            diff = table.diff(since)
            await table.delete_ignore([(n, 7)])
            state = applied(state, await diff.to_pylist())
            assert diff.at is not None and since < diff.at
            since = diff.at
        assert applied(state, await table.diff(since).to_pylist()) == keyed(await table.scan().to_pylist())
        assert await table.diff(since, since).to_pylist() == []

    on_rows(work)


def test_columns_keys_and_limits_are_those_that_were_asked_for() -> None:
    async def work(memory: MemoryTable, since: int) -> None:
        table = memory.table
        diff = table.diff(since, columns=["celsius"], order="key")
        assert list(diff.columns) == ["sensor", "minute", "celsius", "is_deleted"]
        every = await diff.to_pylist()
        assert (await diff.to_arrow()).schema == diff.arrow_schema
        assert await table.diff(since, columns=["celsius"], order="key", limit=7).to_pylist() == every[:7]
        assert await table.diff(since, columns=["celsius"], start=1, end=(3, 20), order="key").to_pylist() == [
            row for row in every if (1, 0) <= (row["sensor"], row["minute"]) < (3, 20)
        ]
        assert await table.diff(since).count() == len(every)
        assert list(table.diff(since, columns=["minute", "note"]).columns) == ["sensor", "minute", "note", "is_deleted"]

    on_rows(work)


@pytest.mark.parametrize("order", ["any", "key"])
def test_a_token_carries_the_rest_of_a_diff_elsewhere(order: str) -> None:
    async def work(memory: MemoryTable, since: int) -> None:
        every = keyed(await memory.table.diff(since).to_pylist())
        for taken in range(5):
            diff = memory.table.diff(since, order=order)
            batches = diff.batches()
            found = [row for _ in range(taken) for row in (await anext(batches)).to_pylist()]
            await batches.aclose()
            token = diff.token()
            assert token is not None
            rest = await memory.table.open(ScanToken.from_bytes(token.to_bytes())).to_pylist()
            assert len(found) + len(rest) == len(every) and keyed(found + rest) == every
        parts = [memory.table.open(token) for token in await memory.table.diff(since).tokens()]
        assert keyed([row for part in parts for row in await part.to_pylist()]) == every

    on_rows(work)


def test_a_slow_reader_makes_no_tablet_look_far_ahead() -> None:
    async def work(memory: MemoryTable, since: int) -> None:
        (tablet,) = memory.tablets
        tablet.pages.clear()
        batches = memory.table.diff(since).batches()
        await anext(batches)
        for _ in range(200):
            await asyncio.sleep(0)
        # One taken, a queue full, one that waits for room in it.
        assert len(tablet.pages) <= PAGES_AHEAD + 2 < 25 // PAGE_ROWS
        await batches.aclose()
        assert len(asyncio.all_tasks()) == 1

    on_rows(work, None)


def test_a_column_that_is_called_like_the_flag_stays_and_one_that_must_not_be_empty_is_for_rows_that_went() -> None:
    async def run() -> None:
        memory = MemoryTable(schema_from_plain(FLAGGED))
        await memory.table.insert([(None, 1, "one"), (True, 2, "two")])
        since = memory.table.now()
        await memory.table.delete([(1,)])
        await memory.table.upsert([(False, 2, "zwei")])
        assert await memory.table.diff(since, order="key").to_pylist() == [
            {"is_deleted": None, "id": 1, "need": None, "is_deleted_": True},
            {"is_deleted": False, "id": 2, "need": "zwei", "is_deleted_": False},
        ]

    asyncio.run(run())


def test_what_no_diff_can_be_is_refused_and_what_is_forgotten_is_too_old() -> None:
    async def work(memory: MemoryTable, since: int) -> None:
        table = memory.table
        with pytest.raises(CallerError, match=r"since must not be after until, but .* is after .*; exchange them"):
            table.diff(since, since - 1)
        with pytest.raises(CallerError, match="order of a diff is 'key_descending'; known: any, key"):
            table.diff(since, order="key_descending")
        with pytest.raises(SchemaMismatch):
            table.diff(since, columns=["fahrenheit"])
        with pytest.raises(CallerError, match="limit must be a whole number from 0, or None for all rows, not int -1"):
            table.diff(since, limit=-1)
        assert table.diff(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)).at is not None
        for tablet in memory.tablets:
            tablet.store.set_history_floor(since + 1)
        with pytest.raises(TooOld):
            await table.diff(since).to_pylist()

    on_rows(work)
