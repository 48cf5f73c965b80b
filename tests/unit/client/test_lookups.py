"""Rows of keys: the right ones, in the order of the keys, with one request for each tablet."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stelae.client import lookup_requests
from stelae.client.key_encoder import KeyEncoder
from stelae.partition.partitioning import NoPartition
from stelae.rows.keys import encode_key
from stelae.spi.errors import SchemaMismatch
from tests.unit.client.tablets import SCHEMA, Clock, MemoryTable, MemoryTablet, one_column
from tests.unit.client.test_altered_table import RENAMED, ROW, WITH_UNIT, WITHOUT_NOTE, Altered
from tests.unit.partition.tables import partition_of_key

HASHED = {"hash": [{"columns": ["sensor"], "buckets": 3}]}
RANGED = {"range": {"columns": ["sensor"], "ranges": [{"from": [0], "until": [10]}]}}
ROWS = [{"sensor": n % 7, "minute": n, "celsius": float(n), "note": None} for n in range(200)]


def on_rows(work: Callable[[MemoryTable], Awaitable[Any]], partition: Any = None) -> None:
    async def carried_out() -> None:
        memory = MemoryTable(partition=partition)
        await memory.table.insert(ROWS)
        for tablet in memory.tablets:
            tablet.pages.clear()
            tablet.lookups.clear()
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


def test_the_keys_of_a_call_go_to_each_tablet_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_requests, "LOOKUP_KEYS_MAX", 50)

    async def work(memory: MemoryTable) -> None:
        keys = [(row["sensor"], row["minute"]) for row in ROWS]
        assert await memory.table.get_many(keys) == ROWS
        for tablet in memory.tablets:
            held = [len(asked) for asked, _ in tablet.lookups]
            assert held == [min(50, sum(held) - start) for start in range(0, sum(held), 50)]
        assert not any(tablet.pages for tablet in memory.tablets)

    on_rows(work)
    on_rows(work, HASHED)


def test_the_keys_of_a_request_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand keys may have 256 MiB, and a request four times less."""
    monkeypatch.setattr(lookup_requests, "LOOKUP_REQUEST_BYTES", 160)

    async def work(memory: MemoryTable) -> None:
        keys = [(row["sensor"], row["minute"]) for row in ROWS]
        assert await memory.table.get_many(keys) == ROWS
        (tablet,) = memory.tablets
        sizes = [sum(map(len, asked)) for asked, _ in tablet.lookups]
        assert sum(sizes) == sum(len(encode_key(SCHEMA, key)) for key in keys)
        assert max(sizes) <= 160 < 2 * sizes[0]

    on_rows(work)


def test_a_column_that_was_dropped_since_the_table_was_opened_is_named() -> None:
    async def run() -> None:
        for read in (lambda table: table.get((1, 0)), lambda table: table.get_many([(1, 0), (1, 1)])):
            world = Altered(WITHOUT_NOTE, MemoryTablet("t-0", SCHEMA, Clock()))
            await world.table.insert([ROW])
            world.before.change_schema(WITHOUT_NOTE)
            with pytest.raises(SchemaMismatch, match="column 'note' was dropped from the table; it has: sensor, min"):
                await read(world.table)
            assert await world.table.get((1, 0)) is None  # The tablet of the table as it is now has no rows.

    asyncio.run(run())


def test_columns_added_and_renamed_since_the_table_was_opened_change_no_record() -> None:
    async def run() -> None:
        for after in (WITH_UNIT, RENAMED):
            world = Altered(after, MemoryTablet("t-0", SCHEMA, Clock()))
            await world.table.insert([ROW])
            world.before.change_schema(after)
            assert await world.table.get((1, 0)) == ROW
            assert world.looks == 0

    asyncio.run(run())


def test_a_key_in_no_range_is_refused_by_one_read_and_has_no_row_among_many() -> None:
    async def work(memory: MemoryTable) -> None:
        with pytest.raises(NoPartition, match="sensor = 11 is in none of the table's 1 ranges"):
            await memory.table.get((11, 0))
        assert await memory.table.get_many([(11, 0), (0, 0)]) == [None, ROWS[0]]

    on_rows(work, RANGED)


@pytest.mark.parametrize("count", [3, 300])
@pytest.mark.parametrize("partition", [None, HASHED])
def test_keys_are_encoded_alike_one_by_one_and_in_a_batch(count: int, partition: Any) -> None:
    schema = MemoryTable(partition=partition).table.schema
    partitioning = MemoryTable(partition=partition).table.partitioning
    keys = [(n % 9 - 4, 7 * n - 900) for n in range(count)]
    partitions, encoded = KeyEncoder(schema).locate_all(partitioning, keys)
    assert encoded == [encode_key(schema, key) for key in keys]
    assert partitions == [partition_of_key(partitioning, key) for key in keys]


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
