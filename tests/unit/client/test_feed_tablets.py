"""Change feeds of a table whose tablets are added, dropped, idle, unreachable, or have a clock that is behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from stelae.client import RangeDropped, feed_round, token_division
from stelae.client.feed_position import FeedPosition
from stelae.client.locations import TableLocation, TabletLocation
from stelae.client.table import AsyncTable
from stelae.host.hybrid_clock import timestamp
from stelae.partition.plain_partitioning import partition_schema_from_plain
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.rows.keys import encode_key
from tests.unit.client.tablets import SCHEMA, Clock, MemoryTablet
from tests.unit.client.test_change_feed import changes_of

TARGET = 128 << 20


class IdleTablet(MemoryTablet):
    """A tablet whose linearizable reads are as of its last entry, as those of a server are."""

    settled = 0

    @property
    def last(self) -> int:
        """Hybrid timestamp of the last entry."""
        return self.store._state[0]

    async def page(self, spec: Any, *, at: int | None, **how: Any) -> Any:
        self.settled = max(self.settled, at or 0)
        return await super().page(spec, at=self.last if at is None else at, **how)


class Ranges:
    """A table with ranges of ``sensor``, which get added and dropped behind the back of the reader."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.bounds: list[tuple[int, int]] = [(0, 10), (10, 20)]
        self.tablets: dict[tuple[int, int], IdleTablet] = {}
        self.made = 0
        self.table = AsyncTable(*self.present(), ["x:1"], self.clock.now, self.reopen, self.newer)

    def present(self) -> tuple[TableLocation, list[IdleTablet]]:
        ranges = [{"from": low, "until": high} for low, high in sorted(self.bounds)]
        scheme = partition_schema_from_plain(SCHEMA, {"range": {"columns": ["sensor"], "ranges": ranges}})
        for bounds in self.bounds:
            if bounds not in self.tablets:
                self.made += 1
                self.tablets[bounds] = IdleTablet(f"tablet-{self.made}", SCHEMA, self.clock)
        tablets = [self.tablets[bounds] for bounds in sorted(self.bounds)]
        where = tuple(TabletLocation(tablet.tablet_id) for tablet in tablets)
        return TableLocation("readings", SCHEMA, scheme, where, "id-1"), tablets

    async def reopen(self, before: TableLocation, timeout_s: float) -> Any:
        return self.present()

    async def newer(self, before: TableLocation, timeout_s: float) -> Any:
        location, tablets = self.present()
        return None if location == before else (location, tablets)

    def add(self, low: int, high: int) -> None:
        self.bounds.append((low, high))

    def drop(self, low: int, high: int) -> None:
        self.bounds.remove((low, high))
        tablet = self.tablets.pop((low, high))
        tablet.error = NoSuchTablet(f"no replica of {tablet.tablet_id}")


def test_a_range_that_is_added_is_read_whole_even_if_the_clock_of_its_leader_is_behind() -> None:
    """By the times alone the rows of the new tablet are from before the round that did not read it."""

    async def run() -> None:
        world = Ranges()
        table = world.table
        await table.insert([(1, 0, None, None)])
        feed = table.changes(before_images=True)
        assert [row["sensor"] for row in await changes_of(feed)] == [1]
        world.add(20, 30)
        await table.refresh()
        new, position = world.tablets[20, 30], feed.position
        new.clock = Clock()
        new.clock.us = 5
        await table.insert([(25, 0, None, None)])
        assert new.last < FeedPosition.from_text(position, "id-1").since
        assert [(row["sensor"], row["_change_type"]) for row in await changes_of(feed)] == [(25, "insert")]
        assert await changes_of(feed) == []
        again = table.changes(position, until=feed.position, before_images=True)
        assert [row["sensor"] for row in await changes_of(again)] == [25]

    asyncio.run(run())


async def one_batch(table: AsyncTable, position: str) -> tuple[list[dict[str, Any]], str]:
    """Read one batch from a position; return its rows and the position behind it."""
    feed = table.changes(position)
    async with aclosing(feed.batches()) as batches:
        return (await anext(batches)).to_pylist(), feed.position


def test_a_range_that_is_added_is_read_whole_by_a_reader_that_stops_behind_each_batch() -> None:
    async def run() -> None:
        world = Ranges()
        table = world.table
        await table.insert([(1, 0, None, None)])
        feed = table.changes()
        await changes_of(feed)
        # It was opened before the range was added.
        early = AsyncTable(*world.present(), ["x:1"], world.clock.now, world.reopen, world.newer)
        world.add(20, 30)
        await table.refresh()
        world.tablets[20, 30].clock = Clock()
        world.tablets[20, 30].clock.us = 5
        await table.insert([(25, minute, None, None) for minute in range(9)])
        position, found = feed.position, []
        end = await feed.next_position()
        for _ in range(3):
            rows, position = await one_batch(table, position)
            found += rows
        assert [row["minute"] for row in found] == [*range(9)]
        (token,) = await early.changes(feed.position, until=end).tokens()
        assert len([batch async for batch in early.open_changes(token)]) == 3, (
            "it was opened before the range was added"
        )

    asyncio.run(run())


@pytest.mark.parametrize("is_added_again", [False, True])
def test_a_range_that_is_dropped_is_an_error_even_if_nothing_was_written_or_it_was_added_again(
    is_added_again: bool,
) -> None:
    """A copy kept the rows of the range for good: they were in no round, and there was no error."""

    async def run() -> None:
        world = Ranges()
        table = world.table
        await table.insert([(n, 0, None, None) for n in (5, 15)])
        feed = table.changes()
        await changes_of(feed)
        gone, position = world.tablets[0, 10].tablet_id, feed.position
        world.drop(0, 10)
        if is_added_again:
            world.add(0, 10)
            await table.refresh()
            await table.insert([(6, 0, None, None)])
        for read in (changes_of(feed), feed.tokens(), feed.next_position(), feed.next_position(rows_max=1)):
            with pytest.raises(
                RangeDropped, match=f"range of table 'readings' .* 1 tablet .* {gone}.* an empty copy; or"
            ):
                await read
        assert feed.position == position
        partial = table.changes(position, fail_on_dropped_ranges=False)
        assert [row["sensor"] for row in await changes_of(partial)] == ([6] if is_added_again else [])
        assert gone not in partial.position
        assert await changes_of(table.changes(partial.position)) == [], "the new position does not have the range"
        with pytest.raises(RangeDropped) as error:
            await table.changes(position, until=partial.position).tokens()
        assert error.value.tablets == (gone,)

    asyncio.run(run())


@pytest.mark.parametrize("before_images", [False, True])
def test_a_range_that_is_dropped_in_the_middle_of_a_round_is_an_error(before_images: bool) -> None:
    async def run() -> None:
        world = Ranges()
        table = world.table
        await table.insert([(n, m, None, None) for n in (5, 15) for m in range(9)])
        feed = table.changes(before_images=before_images)
        await changes_of(feed)
        await table.upsert([(n, m, 1.0, None) for n in (5, 15) for m in range(9)])
        begin, end = feed.position, await feed.next_position()
        tokens = await feed.tokens()
        async with aclosing(feed.batches()) as batches:
            await anext(batches)
            world.drop(0, 10)
            with pytest.raises(RangeDropped):
                _ = [batch async for batch in batches]
        middle = feed.position
        assert middle != begin
        again = [table.changes(begin, end), table.changes(middle), table.changes(middle, end)]
        for read in (*(changes_of(one) for one in again), again[0].tokens(), again[2].tokens()):
            with pytest.raises(RangeDropped):
                await read
        with pytest.raises(RangeDropped):
            _ = [batch async for batch in table.open_changes(tokens[0], before_images=before_images)]
        opened = table.open_changes(tokens[0], before_images=before_images, fail_on_dropped_ranges=False)
        assert [batch async for batch in opened] == []
        partial = table.changes(middle, end, fail_on_dropped_ranges=False)
        assert {row["sensor"] for row in await changes_of(partial)} == {15}
        with pytest.raises(RangeDropped):
            await table.changes(partial.position).next_position()

    asyncio.run(run())


@pytest.mark.parametrize("requests", range(4))
def test_a_range_that_is_dropped_while_a_round_looks_for_changes_is_an_error(requests: int) -> None:
    """The tablet counted as one without changes if it went between two of the requests to it."""

    async def run() -> None:
        world = Ranges()
        table = world.table
        await table.insert([(5, 0, None, None), (15, 0, None, None)])
        feed = table.changes()
        await changes_of(feed)
        await table.upsert([(5, 0, 1.0, None), (15, 0, 1.0, None)])
        begin, end = feed.position, await feed.next_position()
        tablet = world.tablets[0, 10]
        seen = len(tablet.pages)

        async def page(spec: Any, **how: Any) -> Any:
            if len(tablet.pages) - seen == requests and (0, 10) in world.bounds:
                world.drop(0, 10)
            return await IdleTablet.page(tablet, spec, **how)

        setattr(tablet, "page", page)  # noqa: B010
        with pytest.raises(RangeDropped):
            await changes_of(table.changes(begin, end))

    asyncio.run(run())


def test_a_feed_that_goes_on_without_a_dropped_range_reads_one_that_is_added_whole() -> None:
    async def run() -> None:
        world = Ranges()
        table = world.table
        await table.insert([(n, m, None, None) for n in (5, 15) for m in range(9)])
        feed = table.changes(fail_on_dropped_ranges=False)
        async with aclosing(feed.batches()) as batches:
            await anext(batches)
            position = feed.position
            world.drop(0, 10)
            found = [row["sensor"] async for batch in batches for row in batch.to_pylist()]
        assert found[-9:] == [15] * 9
        rest = table.changes(position, fail_on_dropped_ranges=False)
        assert {row["sensor"] for row in await changes_of(rest)} == {15}
        world.add(0, 10)
        await table.insert([(5, 0, None, None)])
        assert [row["sensor"] for row in await changes_of(feed)] == [5]
        assert await changes_of(feed) == []
        elsewhere = AsyncTable(*world.present(), ["x:1"], world.clock.now, world.reopen, world.newer)
        rest = elsewhere.changes(position, fail_on_dropped_ranges=False)
        assert {row["sensor"] for row in await changes_of(rest)} == {5, 15}

    asyncio.run(run())


def test_a_tablet_that_only_cannot_be_found_is_an_error_and_no_hole() -> None:
    async def run() -> None:
        world = Ranges()
        await world.table.insert([(5, 0, None, None), (15, 0, None, None)])
        feed = world.table.changes()
        begin, end = feed.position, await feed.next_position()
        token = (await feed.tokens())[0]
        world.tablets[0, 10].error = NoSuchTablet("it is being moved")
        to_end = world.table.changes(begin, until=end)
        for read in (changes_of(feed), feed.tokens(), feed.next_position(), to_end.tokens(), changes_of(to_end)):
            with pytest.raises(NoSuchTablet, match="being moved"):
                await read
        with pytest.raises(NoSuchTablet, match="being moved"):
            _ = [batch async for batch in world.table.open_changes(token)]
        world.tablets[0, 10].error = None
        assert [row["sensor"] for row in await changes_of(feed)] == [5, 15]

    asyncio.run(run())


def test_an_idle_table_gets_a_later_position_now_and_then_so_that_its_history_does_not_expire() -> None:
    async def run() -> None:
        world = Ranges()
        table = world.table
        await table.insert([(5, 0, None, None)])
        feed = table.changes()
        await changes_of(feed)
        first = feed.position
        assert await feed.next_position() == first
        world.clock.us += int(feed_round.IDLE_S_MAX * 1e6)
        assert await changes_of(feed) == []
        later = FeedPosition.from_text(feed.position, "id-1").since
        assert later > timestamp(int(feed_round.IDLE_S_MAX / 2 * 1e6))
        assert await feed.next_position() == feed.position
        assert all(tablet.settled >= later for tablet in world.tablets.values()), "no later entry is below it"
        assert await table.changes(first, until=feed.position).tokens() == []

    asyncio.run(run())


def test_a_reader_that_takes_what_is_there_now_ends_although_others_go_on_writing() -> None:
    async def run() -> None:
        table = (world := Ranges()).table
        await table.insert([(n, 0, None, None) for n in range(9)])
        position, found, last = table.changes().position, [], await table.changes().last_time()
        for turn in range(1, 9):
            await table.upsert([(n, turn, None, None) for n in (1, 11)])
            end = await table.changes(position).next_position(rows_max=4, not_after=last)
            found += [row["minute"] for row in await changes_of(table.changes(position, until=end))]
            position = end
        assert found == [0] * 9
        world.clock.us += int(feed_round.IDLE_S_MAX * 1e6)
        idle = table.changes(await table.changes(position).next_position())
        world.clock.us += int(feed_round.IDLE_S_MAX * 1e6)
        assert await idle.next_position(not_after=await idle.last_time()) != idle.position

    asyncio.run(run())


def test_described_tablets_with_changes_have_tokens_and_a_target_size_divides_them() -> None:
    async def run() -> None:
        world = Ranges()
        table = world.table
        await table.insert([(n, 0, None, None) for n in range(20)])
        feed = table.changes()
        assert len(await feed.tokens()) == 2
        await changes_of(feed)
        await table.upsert([(n, 1, None, None) for n in range(10)])
        (token,) = await feed.tokens()
        assert token.since is not None
        world.tablets[0, 10].splits = [encode_key(SCHEMA, (4, 0))]
        halves = await feed.tokens(target_bytes=1 << 20)
        found = [
            [row["sensor"] async for batch in table.open_changes(one) for row in batch.to_pylist()] for one in halves
        ]
        assert found == [[*range(4)], [*range(4, 10)]]
        first, second = await table.changes().tokens()
        assert first.parts is not None and second.parts is not None
        both = msgspec.structs.replace(first, parts=first.parts + second.parts)
        read = [row["sensor"] async for batch in table.open_changes(both) for row in batch.to_pylist()]
        assert sorted(read) == sorted([*range(10), *range(20)])

    asyncio.run(run())


def test_tokens_that_are_put_together_are_of_one_kind_of_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tablet that is read whole was read as a diff, when it was put together with one of which a diff is read."""
    monkeypatch.setattr(token_division, "TOKENS_MIN", 1)

    async def run() -> None:
        world = Ranges()
        table = world.table
        await table.insert([(n, 0, None, None) for n in range(20)])
        feed = table.changes()
        await changes_of(feed)
        world.add(20, 30)
        await table.refresh()
        await table.upsert([(n, 1, None, None) for n in range(30)])
        both, added = await feed.tokens(target_bytes=TARGET)
        assert (len(both.parts or ()), len(added.parts or ())) == (2, 1)
        assert both.since is not None and added.since is None
        read = [row["sensor"] async for batch in table.open_changes(both) for row in batch.to_pylist()]
        assert sorted(read) == [*range(20)]
        within = table.changes(await feed.next_position(rows_max=4), await feed.next_position())
        assert len(await within.tokens(target_bytes=TARGET)) == 3

    asyncio.run(run())


class CountedTablets(list[IdleTablet]):
    """Counts how often all tablets are visited."""

    visits = 0

    def __iter__(self) -> Iterator[IdleTablet]:
        self.visits += 1
        return super().__iter__()


def test_the_plan_of_a_feed_visits_the_list_of_tablets_a_few_times_however_many_there_are() -> None:
    """It searched the list for each tablet, several times. With 3 600 tablets a plan took three seconds."""

    async def run() -> None:
        world = Ranges()
        world.bounds = [(n, n + 1) for n in range(100)]
        await world.table.refresh()
        await world.table.insert([(n, 0, None, None) for n in range(100)])
        counted = world.table._tablets = CountedTablets(world.table._tablets)
        feed = world.table.changes()
        await feed.next_position(rows_max=50)
        assert len(await feed.tokens()) == 100
        assert counted.visits < 20

    asyncio.run(run())
