"""Tablets whose replicas have all moved since a table was opened, and tablets that are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from stelae.client.locations import TableLocation, TabletLocation
from stelae.client.table import AsyncTable
from stelae.partition.schema import PartitionSchema
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.spi.ids import NodeId
from tests.unit.client.tablets import SCHEMA, Clock, MemoryTablet

ROWS = [{"sensor": 1, "minute": n} for n in range(9)]


class Moved:
    """A table whose tablet leaves its nodes: ``opened`` is the tablet as it was found at first."""

    def __init__(self, *, now: str = "t-0") -> None:
        clock = Clock()
        self.opened, self.now = MemoryTablet("t-0", SCHEMA, clock), MemoryTablet(now, SCHEMA, clock)
        self.now.store = self.opened.store
        self.after = TableLocation(
            "readings", SCHEMA, PartitionSchema(), (TabletLocation(self.now.tablet_id, ((NodeId("n"), "x:2"),)),)
        )
        before = TableLocation("readings", SCHEMA, PartitionSchema(), (TabletLocation(self.opened.tablet_id),))
        self.table = AsyncTable(before, [self.opened], ["x:1"], clock.now, self.reopen)

    async def reopen(self, before: TableLocation, timeout_s: float) -> tuple[TableLocation, Sequence[MemoryTablet]]:
        return self.after, [self.now]

    async def loaded(self) -> None:
        await self.table.insert(ROWS)

    def leave(self) -> None:
        self.opened.error = NoSuchTablet("no tablet 't-0' on this node")


def test_reads_follow_a_tablet_that_has_moved_between_two_pages_too() -> None:
    async def run() -> None:
        world = Moved()
        await world.loaded()
        batches = world.table.scan(["minute"]).batches()
        found = [row["minute"] for row in (await anext(batches)).to_pylist()]
        world.leave()
        assert found + [row["minute"] async for batch in batches for row in batch.to_pylist()] == [*range(9)]
        world = Moved()
        await world.loaded()
        world.leave()
        assert (await world.table.get((1, 5)) or {})["minute"] == 5

    asyncio.run(run())


def test_the_latest_time_is_asked_for_where_the_tablet_is_now() -> None:
    async def run() -> None:
        world = Moved()
        await world.loaded()
        world.leave()
        assert len(await world.table.scan(at=await world.table.latest()).to_pylist()) == len(ROWS)

    asyncio.run(run())


def test_a_tablet_that_the_table_has_lost_says_so() -> None:
    async def run() -> None:
        world = Moved(now="t-1")
        await world.loaded()
        scan = world.table.scan()
        (token,) = await scan.tokens()
        world.leave()
        with pytest.raises(NoSuchTablet, match="has no tablet 't-0' any more: its range was dropped while it was read"):
            await world.table.open(token).to_pylist()

    asyncio.run(run())
