"""Pages that travel while the rows of the one before are read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from stelae.client.streams import ScanSource
from stelae.client.tokens import TokenPart
from stelae.protocol.tablet_messages import ScanPage
from stelae.spi.errors import Corrupt, Unavailable
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec
from tests.unit.client.tablets import SCHEMA

T = TabletId("t")


class Slow:
    """A tablet of three pages, whose rows are there when a test says so."""

    tablet_id = T

    def __init__(self, fail_at: int | None = None) -> None:
        self.asked: list[bytes | None] = []
        self.coming: list[asyncio.Future[RowBatch | None]] = []
        self.fail_at = fail_at

    async def page(self, spec: ScanSpec, **_: Any) -> tuple[ScanPage, Awaitable[RowBatch | None]]:
        number = len(self.asked)
        self.asked.append(spec.after)
        await asyncio.sleep(0)
        if number == self.fail_at:
            raise Unavailable("nobody serves")
        self.coming.append(asyncio.get_running_loop().create_future())
        after = None if number == 2 else bytes([number])
        return ScanPage(1, SCHEMA.version, 1, after), self.coming[-1]

    def arrive(self, number: int) -> None:
        self.coming[number].set_result(RowBatch.from_equal_rows(SCHEMA.layout, [(1, number, None, None)]))


def source(tablet: Slow, limit: int | None = None) -> ScanSource:
    return ScanSource(0, tablet, ScanSpec(limit=limit), TokenPart(T), None, 1.0)


async def turns() -> None:
    for _ in range(9):
        await asyncio.sleep(0)


def test_the_next_page_is_asked_for_before_the_rows_of_one_are_read_and_no_more() -> None:
    async def run() -> None:
        tablet = Slow()
        pieces = source(tablet).pieces()
        first = asyncio.ensure_future(anext(pieces))
        await turns()
        assert (tablet.asked, first.done()) == ([None, b"\x00"], False)
        tablet.arrive(0)
        assert (await first).rest == TokenPart(T, 1, b"\x00")
        await turns()
        assert len(tablet.asked) == 2, "the one behind is asked for once somebody takes the next"
        rest = asyncio.ensure_future(anext(pieces))
        await turns()
        tablet.arrive(1)
        assert (await rest).rest == TokenPart(T, 1, b"\x01")
        tablet.arrive(2)
        assert (await anext(pieces)).rest is None
        assert tablet.asked == [None, b"\x00", b"\x01"]

    asyncio.run(run())


def test_a_limit_that_is_reached_asks_for_nothing_ahead() -> None:
    async def run() -> None:
        tablet = Slow()
        pieces = source(tablet, limit=1).pieces()
        first = asyncio.ensure_future(anext(pieces))
        await turns()
        tablet.arrive(0)
        assert (await first).rest is None
        assert tablet.asked == [None]

    asyncio.run(run())


def test_what_goes_wrong_ahead_is_raised_behind_the_rows_that_came() -> None:
    async def run() -> None:
        tablet = Slow(fail_at=1)
        pieces = source(tablet).pieces()
        first = asyncio.ensure_future(anext(pieces))
        await turns()
        tablet.arrive(0)
        assert (await first).rows is not None
        with pytest.raises(Unavailable):
            await anext(pieces)

    asyncio.run(run())


def test_rows_that_cannot_be_read_end_the_scan_and_what_is_under_way() -> None:
    async def run() -> None:
        tablet = Slow()
        pieces = source(tablet).pieces()
        first = asyncio.ensure_future(anext(pieces))
        await turns()
        tablet.coming[0].set_exception(Corrupt("no rows"))
        with pytest.raises(Corrupt):
            await first
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())
