"""Rows that are sent to a tablet of another partition: the table is looked up again once, and else the user is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from stelae.client.failures import RowsFailed
from stelae.client.locations import TableLocation, TabletLocation
from stelae.client.session import SessionOptions
from stelae.client.table import AsyncTable
from stelae.partition.plain_partitioning import partition_schema_from_plain
from stelae.rows.batch_building import build_batch
from tests.unit.client.tablets import SCHEMA, Clock, MemoryTablet, failures, tablets_of

FOUR = {"hash": [{"columns": ["sensor"], "buckets": 4}]}
ROWS = [{"sensor": n, "minute": 0, "celsius": 20.5, "note": "-"} for n in range(40)]


class Astray:
    """A table of four tablets that was opened by locations of which two are exchanged.

    Args:
        cured: who looks it up again gets the true ones."""

    def __init__(self, *, cured: bool) -> None:
        self.scheme = partition_schema_from_plain(SCHEMA, FOUR)
        clock = Clock()
        self.tablets = tablets_of("readings", SCHEMA, self.scheme, clock)
        one, two, *rest = self.tablets
        self.wrong = [two, one, *rest]
        self.cured = cured
        self.looks = 0
        self.table = AsyncTable(self.location(self.wrong), self.wrong, ["x:1"], clock.now, self.reopen)

    def location(self, tablets: Sequence[MemoryTablet]) -> TableLocation:
        where = tuple(TabletLocation(tablet.tablet_id) for tablet in tablets)
        return TableLocation("readings", SCHEMA, self.scheme, where, "id-1")

    async def reopen(self, before: TableLocation, timeout_s: float) -> tuple[TableLocation, Sequence[MemoryTablet]]:
        self.looks += 1
        tablets = self.tablets if self.cured else self.wrong
        return self.location(tablets), tablets

    @property
    def held(self) -> list[int]:
        """Number of rows that each tablet holds."""
        return [int(tablet.store.checksum().rpartition("-")[2]) for tablet in self.tablets]

    @property
    def shares(self) -> list[int]:
        """Number of rows that each tablet is to hold."""
        places = self.table.partitioning.partitions_of(_batch())
        return [places.count(n) for n in range(4)]


def _batch() -> Any:
    return build_batch(SCHEMA.layout, [tuple(row.values()) for row in ROWS])


@pytest.mark.parametrize("data", [ROWS, pa.Table.from_pylist(ROWS)], ids=["dicts", "frame"])
def test_rows_find_their_tablet_when_the_locations_are_looked_up_again(data: Any) -> None:
    async def run() -> None:
        world = Astray(cured=True)
        result = await world.table.insert(data)
        assert result.failed == 0 and world.looks == 1
        assert world.held == world.shares

    asyncio.run(run())


def test_rows_of_a_session_do_too() -> None:
    async def run() -> None:
        world = Astray(cured=True)
        async with world.table.session(SessionOptions()) as session:
            for row in ROWS:
                await session.insert(row)
        assert world.looks == 1 and world.held == world.shares

    asyncio.run(run())


def test_with_locations_that_stay_wrong_each_row_is_told_of_and_the_others_are_written() -> None:
    async def run() -> None:
        world = Astray(cured=False)
        with pytest.raises(RowsFailed, match="is outside of the tablet's partition: bucket 1 of 4 by sensor") as caught:
            await world.table.insert(ROWS)
        assert world.looks == 1
        assert world.held == [0, 0, *world.shares[2:]]
        lost = [n for n, place in enumerate(world.table.partitioning.partitions_of(_batch())) if place < 2]
        assert failures(caught) == [(n, "OUTSIDE_PARTITION") for n in lost]
        first = caught.value.failures[0]
        assert first.values == ROWS[lost[0]]
        assert "name tablet readings-" in first.reason and "they are wrong" in first.reason

    asyncio.run(run())


def test_a_delete_of_a_row_elsewhere_takes_none_away() -> None:
    async def run() -> None:
        world = Astray(cured=False)
        for tablet, share in zip(world.tablets, world.table.partitioning.split(_batch()), strict=True):
            right = AsyncTable(world.location(world.tablets), world.tablets, ["x:1"], tablet.clock.now)
            assert (await right.insert(share.rows.arrow)).failed == 0
        keys = [{"sensor": row["sensor"], "minute": 0} for row in ROWS]
        result = await world.table.delete(keys, errors="return")
        assert {failure.code for failure in result.failures} == {"OUTSIDE_PARTITION"}
        assert world.held == [*world.shares[:2], 0, 0]

    asyncio.run(run())
