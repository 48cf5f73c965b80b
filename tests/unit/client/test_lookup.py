"""Rows of many keys: the right ones, in order, with few pages where they are neighbours and none read in vain."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stelae.client import lookup
from stelae.spi.errors import SchemaMismatch
from tests.unit.client import tablets
from tests.unit.client.tablets import MemoryTable, one_column

HASHED = {"hash": [{"columns": ["sensor"], "buckets": 3}]}
RANGED = {"range": {"columns": ["sensor"], "ranges": [{"from": [0], "until": [10]}]}}
ROWS = [{"sensor": n % 7, "minute": n, "celsius": float(n), "note": None} for n in range(200)]


def on_rows(work: Callable[[MemoryTable], Awaitable[Any]], partition: Any = None) -> None:
    async def carried_out() -> None:
        memory = MemoryTable(partition=partition)
        await memory.table.insert(ROWS)
        for tablet in memory.tablets:
            tablet.pages.clear()
        await work(memory)

    asyncio.run(carried_out())


@pytest.mark.parametrize("partition", [None, HASHED, RANGED])
@pytest.mark.parametrize("share", [0.02, 0.3, 1.0])
def test_each_key_has_its_row_or_none_in_the_order_of_the_keys(partition: Any, share: float) -> None:
    async def work(memory: MemoryTable) -> None:
        rng = random.Random(share)
        chosen = rng.sample(ROWS, int(share * len(ROWS)))
        missing = [(n, 5000 - n) for n in range(12)]
        keys = [(row["sensor"], row["minute"]) for row in chosen] + missing + [(0, 0), (0, 0)]
        expected: list[Any] = [*chosen, *[None] * 12, ROWS[0], ROWS[0]]
        assert await memory.table.get_many(keys) == expected
        by_name = [{"minute": minute, "sensor": sensor} for sensor, minute in keys]
        assert await memory.table.get_many(by_name) == expected

    on_rows(work, partition)


def test_neighbours_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tablets, "PAGE_ROWS", 50)

    async def work(memory: MemoryTable) -> None:
        keys = [(row["sensor"], row["minute"]) for row in ROWS]
        assert await memory.table.get_many(keys) == ROWS
        assert sum(len(tablet.pages) for tablet in memory.tablets) <= 6

    on_rows(work)


def test_keys_far_apart_are_read_by_themselves_and_not_all_that_lies_between(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(memory: MemoryTable) -> None:
        read = 0
        scanned = lookup.KeyLookup._scanned

        async def counting(*given: Any) -> Any:
            nonlocal read
            found = await scanned(*given)
            read += found[0]
            return found

        monkeypatch.setattr(lookup.KeyLookup, "_scanned", counting)
        found = await memory.table.get_many([(0, 0), (3, 101), (6, 195)])
        assert [row and row["celsius"] for row in found] == [0.0, 101.0, 195.0]
        assert read <= lookup.ROWS_FOR_A_KEY * (3 + 2 + 1)

    on_rows(work)


def test_an_older_time_and_what_does_not_fit() -> None:
    async def work(memory: MemoryTable) -> None:
        old = memory.table.now()
        await memory.table.delete([(0, 0), (1, 1)])
        assert await memory.table.get_many([(0, 0), (1, 1)]) == [None, None]
        assert await memory.table.get_many([(0, 0), (1, 1)], at=old) == ROWS[:2]
        assert await memory.table.get_many([]) == []
        with pytest.raises(SchemaMismatch):
            await memory.table.get_many([(0, 0), (1,)])
        with pytest.raises(SchemaMismatch):
            await memory.table.get_many([(0, "noon")])

    on_rows(work)


def test_keys_that_are_no_numbers_are_found_too() -> None:
    async def run() -> None:
        memory = MemoryTable(one_column("value", "int64", key_type="double"))
        await memory.table.insert([(value, 1) for value in (float("nan"), -0.0, float("inf"), 2.5)])
        found = await memory.table.get_many([2.5, float("nan"), 0.0, 3.5, float("inf")])
        assert [row is not None for row in found] == [True, True, True, False, True]

    asyncio.run(run())
