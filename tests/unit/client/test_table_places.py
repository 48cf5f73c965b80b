"""Where the masters have a tablet whose members a client no longer knows."""

from __future__ import annotations

import asyncio
import gc
import weakref
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.client.leader_tracker import LeaderTracker
from stelae.client.member_lookup import MemberLookup
from stelae.client.table_places import TablePlaces
from stelae.partition.schema import Partition
from stelae.protocol.catalog_names import TabletState
from stelae.protocol.codec import encode
from stelae.protocol.master_errors import NoTable
from stelae.protocol.master_messages import TabletPlace
from stelae.protocol.tablet_messages import Description
from stelae.spi.errors import Unavailable
from stelae.spi.ids import NodeId, OpId, TabletId

OLD, NEW = NodeId("old"), NodeId("new")
T = TabletId("t")


def place(*members: NodeId, tablet: TabletId = T, config: OpId = OpId(1, 2)) -> TabletPlace:
    listed = tuple((node, f"{node}:1") for node in members)
    return TabletPlace(
        tablet_id=tablet, state=TabletState.RUNNING, partition=Partition(), members=listed, config=config
    )


class Masters:
    """Answers for one table. ``error``: what they answer instead."""

    def __init__(self, *places: TabletPlace) -> None:
        self.places = list(places)
        self.error: Exception | None = None
        self.asked = 0
        self.table = TablePlaces(self)

    async def get_table(self, table: str, *, timeout_s: float) -> Any:
        self.asked += 1
        places = tuple(self.places)
        for _ in range(5):
            await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return SimpleNamespace(tablets=places)


def test_tablets_that_are_looked_up_at_the_same_time_share_one_answer() -> None:
    async def run() -> None:
        other = TabletId("u")
        masters = Masters(place(NEW), place(OLD, tablet=other))
        found = await asyncio.gather(*(masters.table.find("1", name) for name in (T, other, T)))
        assert [one and one.members[0][0] for one in found] == [NEW, OLD, NEW] and masters.asked == 1

    asyncio.run(run())


def test_an_answer_is_never_older_than_the_question() -> None:
    """Found by a benchmark: a tablet that had just moved was written at the server of before."""

    async def run() -> None:
        masters = Masters(place(OLD))
        first = asyncio.ensure_future(masters.table.find("1", T))
        while not masters.asked:
            await asyncio.sleep(0)
        later = [asyncio.ensure_future(masters.table.find("1", T)) for _ in range(3)]
        await asyncio.sleep(0)
        assert masters.asked == 1, "they wait for the end of the first request"
        masters.places = [place(NEW)]
        assert (answer := await first) is not None and answer.members[0][0] == OLD
        assert {one.members[0][0] for one in await asyncio.gather(*later) if one} == {NEW} and masters.asked == 2
        masters.places = []
        assert await masters.table.is_gone("1", T) and masters.asked == 3

    asyncio.run(run())


def test_a_dropped_table_is_gone_and_masters_that_do_not_answer_say_nothing() -> None:
    async def run() -> None:
        masters = Masters(place(OLD))
        masters.error = Unavailable("no master answered")
        assert not await masters.table.is_gone("1", T)
        with pytest.raises(Unavailable):
            await masters.table.find("1", T)
        assert masters.asked == 2, "an error is not kept"
        masters.error = NoTable("1", [])
        assert await masters.table.is_gone("1", T)

    asyncio.run(run())


def test_closing_ends_a_request_that_is_under_way() -> None:
    async def run() -> None:
        masters = Masters(place(OLD))
        asking = asyncio.ensure_future(masters.table.find("1", T))
        await asyncio.sleep(0)
        masters.table.close()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(run())


class Nodes:
    """The nodes that a client knows. ``answers``: the members that each one names."""

    def __init__(self, answers: dict[NodeId, tuple[NodeId, ...]]) -> None:
        self.answers = answers
        self.nodes = [*answers]
        self.peers: set[NodeId] = set()

    async def ask(self, node: NodeId, kind: str, body: bytes) -> Any:
        if not self.answers.get(node):
            raise Unavailable(f"{node} has no replica")
        listed = tuple((member, f"{member}:1") for member in self.answers[node])
        described = Description(schema=b"", leader=None, members=listed, config=OpId(1, 1))
        return SimpleNamespace(body=[encode(described)])

    def add_peers(self, members: Any) -> None:
        self.peers |= {node for node, _ in members}


@pytest.mark.parametrize("answer", [(), (OLD,)], ids=["no replica", "an old config"])
def test_a_tablet_on_servers_that_the_client_has_never_heard_of_is_found_by_the_masters(
    answer: tuple[NodeId, ...],
) -> None:
    async def run() -> None:
        nodes, masters = Nodes({OLD: answer}), Masters(place(NEW))
        lookup = MemberLookup(nodes)
        tracker = lookup.follow(T, LeaderTracker([OLD]))
        lookup.ask_masters(T, lambda: masters.table.find("1", T))
        tracker.failed(OLD)
        for _ in range(30):
            await asyncio.sleep(0)
        assert list(tracker.members) == [NEW] and NEW in nodes.peers

    asyncio.run(run())


def test_masters_that_lag_behind_the_nodes_are_not_believed() -> None:
    async def run() -> None:
        nodes, masters = Nodes({NEW: (NEW,)}), Masters(place(OLD, config=OpId(1, 0)))
        lookup = MemberLookup(nodes)
        tracker = lookup.follow(T, LeaderTracker([NEW]))
        lookup.ask_masters(T, lambda: masters.table.find("1", T))
        for answer in ((NEW,), ()):  # Also when the node does not answer the next time.
            nodes.answers[NEW] = answer
            tracker.failed(NEW)
            for _ in range(30):
                await asyncio.sleep(0)
            assert list(tracker.members) == [NEW]
        assert masters.asked == 2

    asyncio.run(run())


def test_masters_are_not_asked_while_nodes_know_better_and_change_nothing_that_is_known() -> None:
    async def run() -> None:
        nodes, masters = Nodes({OLD: (OLD, NEW)}), Masters(place(OLD))
        lookup = MemberLookup(nodes)
        tracker = lookup.follow(T, LeaderTracker([OLD]))
        lookup.ask_masters(T, lambda: masters.table.find("1", T))
        tracker.failed(OLD)
        for _ in range(30):
            await asyncio.sleep(0)
        assert list(tracker.members) == [OLD, NEW] and masters.asked == 0
        nodes.answers[OLD] = ()
        tracker.failed(tracker.current)
        tracker.failed(tracker.current)
        for _ in range(30):
            await asyncio.sleep(0)
        assert list(tracker.members) == [OLD, NEW] and masters.asked == 1

    asyncio.run(run())


def test_a_client_keeps_nothing_of_a_tablet_that_it_does_not_use_any_more() -> None:
    """A client that lived long kept something for each tablet of every table that it had ever opened."""

    async def run() -> None:
        lookup, places = MemberLookup(Nodes({OLD: ()})), Masters(place(NEW)).table
        first, second = (lookup.follow(T, LeaderTracker([OLD])) for _ in range(2))
        lookup.ask_masters(T, partial(places.find, "1", T))
        kept = weakref.ref(places)
        del places, first
        gc.collect()
        assert kept() is not None, "another tracker needs it"
        second.failed(OLD)
        for _ in range(30):
            await asyncio.sleep(0)
        assert list(second.members) == [NEW]
        del second
        gc.collect()
        assert kept() is None

    asyncio.run(run())
