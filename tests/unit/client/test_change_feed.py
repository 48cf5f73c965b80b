"""The change feed over tablets in memory: a copy that applies it equals the table, from every position."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from stelae.client import BadPosition, ChangesExpired, ScanToken, change_feed
from stelae.client.feed_columns import FeedRows
from stelae.client.feed_position import FeedPosition
from stelae.client.table import AsyncTable
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import CallerError, SchemaMismatch
from tests.unit.client.tablets import MemoryTable

HASHED = {"hash": [{"columns": ["sensor"], "buckets": 3}]}
ADDED = ["_change_type", "_commit_version", "_commit_timestamp"]

Rows = dict[tuple[int, int], dict[str, Any]]
Work = Callable[[MemoryTable], Awaitable[Any]]


def keyed(rows: Iterable[dict[str, Any]]) -> Rows:
    return {(row["sensor"], row["minute"]): row for row in rows}


def apply(copy: Rows, changes: Sequence[dict[str, Any]]) -> None:
    """Apply changes to a copy of a table, one by one."""
    for change in changes:
        row = {name: value for name, value in change.items() if name not in ADDED}
        key = (row["sensor"], row["minute"])
        match change["_change_type"]:
            case "delete":
                del copy[key]
            case "update_preimage":
                assert copy[key] == row
            case "insert":
                assert key not in copy
                copy[key] = row
            case "update_postimage":
                assert key in copy
                copy[key] = row
            case "upsert":
                copy[key] = row
            case other:
                raise AssertionError(other)


async def changes_of(feed: change_feed.AsyncChangeFeed) -> list[dict[str, Any]]:
    return [row async for batch in feed for row in batch.to_pylist()]


async def contents(table: AsyncTable, at: int | None = None) -> Rows:
    return keyed(await table.scan(at=at).to_pylist())


async def write_something(table: AsyncTable, rng: random.Random) -> None:
    """Upsert and delete a few random rows."""
    for _ in range(rng.randrange(1, 12)):
        key = (rng.randrange(6), rng.randrange(8))
        if rng.random() < 0.4:
            await table.delete_ignore([key])
        else:
            await table.upsert([(*key, rng.random(), rng.choice([None, "x"]))])


def on_tablets(work: Work, partition: Any = HASHED) -> None:
    asyncio.run(work(MemoryTable(partition=partition)))


@pytest.mark.parametrize("before_images", [False, True])
@pytest.mark.parametrize("partition", [None, HASHED])
@pytest.mark.parametrize("seed", range(5))
def test_a_copy_that_applies_the_feed_equals_the_table_at_the_end_of_every_round(
    seed: int, partition: Any, before_images: bool
) -> None:
    async def work(memory: MemoryTable) -> None:
        rng, table, copy, position = random.Random(seed), memory.table, Rows(), None
        for _ in range(12):
            await write_something(table, rng)
            feed = table.changes(position, before_images=before_images)
            changes = await changes_of(feed)
            apply(copy, changes)
            position = feed.position
            end = FeedPosition.from_text(position, "readings")
            assert end.is_between and copy == await contents(table, end.since) == await contents(table)
            assert {change["_commit_version"] for change in changes} <= {end.since}
            await write_something(table, rng)

    on_tablets(work, partition)


@pytest.mark.parametrize("before_images", [False, True])
@pytest.mark.parametrize("rows_max", [None, 1, 4])
@pytest.mark.parametrize("seed", range(3))
def test_a_reader_that_stops_anywhere_goes_on_from_its_position_and_reads_each_change_once(
    seed: int, rows_max: int | None, before_images: bool
) -> None:
    """``rows_max``: the reader asks for the next position first, as Spark does, and reads up to it by tokens."""

    async def work(memory: MemoryTable) -> None:
        rng, table, copy = random.Random(seed), memory.table, Rows()
        position = table.changes().position
        for turn in range(60):
            if turn % 5 == 0:
                await write_something(table, rng)
            if rows_max is None:
                feed = table.changes(position, before_images=before_images)
                async with aclosing(feed.batches()) as batches:
                    async for batch in batches:
                        apply(copy, batch.to_pylist())
                        break
                position = feed.position
                continue
            end = await table.changes(position).next_position(rows_max=rows_max)
            found: list[dict[str, Any]] = []
            for token in await table.changes(position, until=end).tokens():
                sent = ScanToken.from_bytes(token.to_bytes())
                async for batch in table.open_changes(sent, before_images=before_images):
                    found += batch.to_pylist()
            again = table.changes(position, until=end, before_images=before_images)
            read, places = [], []
            async for batch in again:
                read += batch.to_pylist()
                places.append((again.position, len(read)))
            assert read == found, "the same positions give the same changes"
            for place, count in places[-2:]:
                rest = table.changes(place, until=end, before_images=before_images)
                assert await changes_of(rest) == found[count:]
            assert len([one for one in found if one["_change_type"] != "update_preimage"]) <= rows_max
            apply(copy, found)
            position = end
        feed = table.changes(position, before_images=before_images)
        apply(copy, await changes_of(feed))
        assert copy == await contents(table)

    on_tablets(work)


def test_the_types_of_changes_and_their_times_are_those_of_the_round() -> None:
    async def work(memory: MemoryTable) -> None:
        table = memory.table
        await table.insert([(1, n, float(n), None) for n in range(3)])
        since = table.now()
        await table.insert([(1, 5, 5.0, None), (1, 6, 6.0, None)])
        await table.update([{"sensor": 1, "minute": 0, "celsius": 9.0}])
        await table.delete([(1, 1), (1, 6)])
        until = table.now()
        await table.delete([(1, 0)])
        plain = await changes_of(table.changes(since, until, ["celsius"]))
        assert [(row["minute"], row["celsius"], row["_change_type"]) for row in plain] == [
            (0, 9.0, "upsert"),
            (1, None, "delete"),
            (5, 5.0, "upsert"),
        ]
        assert {row["_commit_version"] for row in plain} == {until}
        feed = table.changes(since, until, ["celsius"], before_images=True)
        assert list(feed.columns) == ["sensor", "minute", "celsius", *ADDED]
        imaged = await changes_of(feed)
        assert [(row["minute"], row["celsius"], row["_change_type"]) for row in imaged] == [
            (0, 0.0, "update_preimage"),
            (0, 9.0, "update_postimage"),
            (1, 1.0, "delete"),
            (5, 5.0, "insert"),
        ]
        assert await changes_of(table.changes(until, until)) == []

    on_tablets(work, None)


def test_a_feed_that_follows_waits_for_changes_and_has_them_in_the_order_of_their_commits() -> None:
    async def work(memory: MemoryTable) -> None:
        table, found = memory.table, []
        feed = table.changes(follow=True, poll_s=0.001)
        async with aclosing(feed.batches()) as batches:
            for turn in range(5):
                await table.upsert([(1, 1, float(turn), None)])
                batch = await anext(batches)
                found += batch.to_pylist()
                assert (await changes_of(table.changes(feed.position))) == []
        assert [row["celsius"] for row in found] == [0.0, 1.0, 2.0, 3.0, 4.0]
        versions = [row["_commit_version"] for row in found]
        assert versions == sorted(set(versions))
        assert len(asyncio.all_tasks()) == 1

    on_tablets(work)


def test_history_that_has_expired_is_an_error_before_the_first_change_and_names_the_oldest_time() -> None:
    async def work(memory: MemoryTable) -> None:
        table = memory.table
        await table.insert([(n, 0, None, None) for n in range(6)])
        feed = table.changes()
        await changes_of(feed)
        await table.upsert([(n, 1, None, None) for n in range(6)])
        token = (await feed.tokens())[0]
        floors = [memory.clock.now() for _ in memory.tablets]
        for tablet, floor in zip(memory.tablets, floors, strict=True):
            tablet.store.set_history_floor(floor)
        for read in (changes_of(feed), feed.next_position(rows_max=1), feed.tokens()):
            with pytest.raises(
                ChangesExpired, match=r"'readings' is at 1970.*its history since 1970.*retention_s"
            ) as error:
                await read
            assert error.value.floor == max(floors)
        with pytest.raises(ChangesExpired):
            _ = [batch async for batch in table.open_changes(token)]
        assert len(await changes_of(table.changes())) == 12

    on_tablets(work)


def test_a_batch_that_is_put_back_comes_again() -> None:
    """Ctrl-C had lost one: the position was behind a batch that the synchronous client never handed on."""

    async def work(memory: MemoryTable) -> None:
        rng, table = random.Random(1), memory.table
        for _ in range(8):
            await write_something(table, rng)
        expected = await changes_of(table.changes())
        feed, found = table.changes(), list[dict[str, Any]]()
        for _ in range(1000):
            batches = feed.batches()
            if await anext(batches, None) is None:
                break
            await batches.aclose()
            feed.put_back()
            batches = table.changes(feed.position).batches()
            found += (await anext(batches)).to_pylist()
            await batches.aclose()
            batches = feed.batches()
            await anext(batches)
            await batches.aclose()
        strip = [[{k: v for k, v in row.items() if k not in ADDED} for row in rows] for rows in (found, expected)]
        assert strip[0] == strip[1] != []

    on_tablets(work)


def test_arguments_that_make_no_feed_are_refused() -> None:
    async def work(memory: MemoryTable) -> None:
        table = memory.table
        await table.insert([(1, 0, None, None)])
        now, begin = table.now(), table.changes().position
        other = begin.replace("readings", "other")
        with pytest.raises(CallerError, match="since must not be after until"):
            table.changes(now, now - 1)
        with pytest.raises(CallerError, match="a feed that follows has no end"):
            table.changes(now, now + 1, follow=True)
        with pytest.raises(BadPosition, match="position is of table 'other'"):
            table.changes(other)
        for text in ("", "{}", "[1]", begin.replace('"version":1', '"version":1,"after":"xy"')):
            with pytest.raises(BadPosition, match="is no position of a change feed"):
                table.changes(text)
        with pytest.raises(BadPosition, match="version 2"):
            table.changes(begin.replace('"version":1', '"version":2'))
        with pytest.raises(BadPosition, match="not in one round"):
            table.changes(str(FeedPosition.at("readings", now)), until=begin)
        with pytest.raises(SchemaMismatch, match="no column 'fahrenheit'"):
            table.changes(columns=["fahrenheit"])
        await table.insert([(1, 1, None, None)])
        within = await table.changes().next_position(rows_max=1)
        for until in (None, table.now()):
            with pytest.raises(BadPosition, match="begins within a round; give its end"):
                await table.changes(within, until).tokens()
        assert len(await table.changes(within, await table.changes(within).next_position()).tokens()) == 1
        with pytest.raises(CallerError, match="poll_s"):
            table.changes(poll_s=0)

    on_tablets(work)


def test_a_column_with_a_name_of_the_feed_is_refused_unless_it_is_left_out() -> None:
    columns = [{"name": "id", "type": "int64"}, {"name": "_change_type", "type": "string", "nullable": True}]
    schema = schema_from_plain({"columns": columns, "key": ["id"]})
    with pytest.raises(SchemaMismatch, match="has a column '_change_type', as the change feed has; choose"):
        FeedRows(schema, schema.layout.ids)
    assert FeedRows(schema, schema.key).arrow_schema.names == ["id", *ADDED]
