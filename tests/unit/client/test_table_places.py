"""Where the masters have a tablet whose members a client no longer knows."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.client.leader_tracker import LeaderTracker
from stelae.client.member_lookup import MemberLookup
from stelae.client.table_places import AGE_S, TablePlaces
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


def place(*members: NodeId, tablet: TabletId = T) -> TabletPlace:
    listed = tuple((node, f"{node}:1") for node in members)
    return TabletPlace(tablet_id=tablet, state=TabletState.RUNNING, partition=Partition(), members=listed)


class Masters:
    """Answers for one table. ``error``: what they answer instead."""

    def __init__(self, *places: TabletPlace) -> None:
        self.places = list(places)
        self.error: Exception | None = None
        self.asked = 0
        self.now_s = 100.0
        self.table = TablePlaces(self, lambda: self.now_s)

    async def get_table(self, table: str, *, timeout_s: float) -> Any:
        self.asked += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return SimpleNamespace(tablets=tuple(self.places))


def test_tablets_that_are_looked_up_at_the_same_time_share_one_answer() -> None:
    async def run() -> None:
        other = TabletId("u")
        masters = Masters(place(NEW), place(OLD, tablet=other))
        found = await asyncio.gather(*(masters.table.find("1", name) for name in (T, other, T)))
        assert [one and one.members[0][0] for one in found] == [NEW, OLD, NEW] and masters.asked == 1
        masters.now_s += AGE_S / 2
        assert await masters.table.find("1", T) is not None and masters.asked == 1
        masters.now_s += AGE_S
        assert await masters.table.find("1", T) is not None and masters.asked == 2

    asyncio.run(run())


def test_an_answer_from_before_a_tablet_was_added_does_not_make_it_gone() -> None:
    async def run() -> None:
        masters = Masters(place(OLD))
        assert await masters.table.find("1", T) is not None
        new = TabletId("new")
        masters.places.append(place(NEW, tablet=new))
        assert not await masters.table.is_gone("1", new) and masters.asked == 2
        masters.places.clear()
        assert await masters.table.is_gone("1", TabletId("dropped")) and masters.asked == 3

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
        for _ in range(10):
            await asyncio.sleep(0)
        assert list(tracker.members) == [NEW] and NEW in nodes.peers

    asyncio.run(run())


def test_masters_are_not_asked_while_nodes_know_better_and_change_nothing_that_is_known() -> None:
    async def run() -> None:
        nodes, masters = Nodes({OLD: (OLD, NEW)}), Masters(place(OLD))
        lookup = MemberLookup(nodes)
        tracker = lookup.follow(T, LeaderTracker([OLD]))
        lookup.ask_masters(T, lambda: masters.table.find("1", T))
        tracker.failed(OLD)
        for _ in range(10):
            await asyncio.sleep(0)
        assert list(tracker.members) == [OLD, NEW] and masters.asked == 0
        nodes.answers[OLD] = ()
        tracker.failed(tracker.current)
        tracker.failed(tracker.current)
        for _ in range(10):
            await asyncio.sleep(0)
        assert list(tracker.members) == [OLD, NEW] and masters.asked == 1

    asyncio.run(run())
