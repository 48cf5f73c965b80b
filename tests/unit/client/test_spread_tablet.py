"""Whom reads ask: the leader for what must be new, any replica for what names its time."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

from stelae.client.leader_tracker import LeaderTracker
from stelae.client.nearness import Nearness
from stelae.client.page_rows import PageRows
from stelae.client.spread_tablet import SpreadTablet
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.scan import ScanSpec

NODES = [NodeId(name) for name in "abc"]


def asked(
    *reads: tuple[ScanSpec, int | None, int | None], nearness: Nearness | None = None
) -> list[LeaderTracker | None]:
    """The tracker that each read asks; ``None`` is the leader's."""
    found: list[LeaderTracker | None] = []

    async def page(_spec: ScanSpec, *, ask: LeaderTracker | None, **_: Any) -> None:
        found.append(ask)

    tablet: Any = SimpleNamespace(tablet_id=TabletId("t"), schema=None, leader=LeaderTracker(NODES), page=page)
    connection: Any = SimpleNamespace(
        rng=random.Random(1),
        member_lookup=SimpleNamespace(follow=lambda _tablet_id, tracker: tracker),
        lookups=lambda _tablet_id, _schema: None,
    )
    spread = SpreadTablet(tablet, connection, nearness or Nearness())

    async def read() -> None:
        for spec, at, at_least in reads:
            await spread.page(spec, at=at, at_least=at_least, reader=PageRows(spec), timeout_s=1.0)

    asyncio.run(read())
    return found


def test_the_newest_rows_are_asked_of_the_leader_alone() -> None:
    assert asked((ScanSpec(), None, None)) == [None]


def test_readers_that_name_a_time_spread_over_all_replicas() -> None:
    trackers = asked(*[(ScanSpec(), 5, None)] * 30, *[(ScanSpec(), None, 5)] * 30)
    assert {tracker.current for tracker in trackers if tracker} == {*NODES}
    assert all(tracker and sorted(tracker.members) == NODES for tracker in trackers)


def test_the_pages_of_one_scan_stay_with_one_replica() -> None:
    first, second, third = asked(*[(ScanSpec(after=after), 5, None) for after in (None, b"a", b"b")])
    assert first is second is third is not None


def test_lookups_of_the_latest_rows_ask_the_leader_and_those_of_a_time_any_replica() -> None:
    leader, trackers = LeaderTracker(NODES), []

    async def add(keys: Any, at: Any, timeout_s: float, followed: Any) -> None:
        trackers.append((at, followed()))

    tablet: Any = SimpleNamespace(tablet_id=TabletId("t"), schema=None, leader=leader)
    connection: Any = SimpleNamespace(
        rng=random.Random(1),
        member_lookup=SimpleNamespace(follow=lambda _tablet_id, tracker: tracker),
        lookups=lambda _tablet_id, _schema: SimpleNamespace(add=add),
    )
    spread = SpreadTablet(tablet, connection, Nearness())

    async def look_up() -> None:
        for at in (None, *range(30)):
            await spread.look_up([b"k"], at=at, timeout_s=1.0)

    asyncio.run(look_up())
    assert [tracker for at, tracker in trackers if at is None] == [leader]
    assert {tracker.current for at, tracker in trackers if at is not None} == {*NODES}


def test_readers_that_name_a_time_begin_at_the_nearest_replica() -> None:
    near = Nearness("/x/r1", {NODES[0]: "/x/r2/h1", NODES[1]: "/x/r1/h2", NODES[2]: "/y/r1/h3"})
    trackers = asked(*[(ScanSpec(), 5, None)] * 20, nearness=near)
    assert [tracker.members for tracker in trackers if tracker] == [["b", "a", "c"]] * 20
