"""A closed client: all that waits or is begun afterwards ends at once, and says why."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stelae.client.async_client import AsyncClient
from stelae.client.catalog import CatalogClient
from stelae.client.connection import ConnectedTablet, Connection
from stelae.client.greeting import Greeting
from stelae.client.leader_tracker import LeaderTracker
from stelae.client.locations import TableLocation, TabletLocation
from stelae.client.lookup_queue import LookupQueue
from stelae.client.masters import AsyncMasters
from stelae.client.nearness import Nearness
from stelae.client.spread_tablet import SpreadTablet
from stelae.client.table import AsyncTable
from stelae.client.tablet_writer import TabletWriter
from stelae.client.turns import ClientTurns
from stelae.partition.schema import PartitionSchema
from stelae.spi.errors import Unavailable
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.scan import ScanSpec
from stelae.spi.write import OpKind
from stelae.wire.messenger import Response
from tests.tablet_rows import write_to
from tests.unit.client.tablets import one_column

NODE, ADDRESS, TABLET = NodeId("1" * 32), "127.0.0.1:1", TabletId("t")
SCHEMA = one_column("value", "double")
TIMEOUT_S = 300.0


class Network:
    """A messenger whose nodes do not answer until it is closed."""

    def __init__(self) -> None:
        self.calls: list[asyncio.Future[Response]] = []
        self.closed = False

    def call(self, _to: NodeId, _kind: str, *_: Any, **_more: Any) -> asyncio.Future[Response]:
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.calls.append(future)
        if self.closed:
            future.set_exception(Unavailable("the node is not a peer"))
        return future

    def connect(self, _address: str, *, deadline_ms: int) -> asyncio.Future[NodeId]:
        assert not self.closed, "a closed messenger has no sockets"
        return asyncio.get_running_loop().create_future()

    def connected(self, _node_id: NodeId) -> None:
        """No link is up."""

    def add_peer(self, *_peer: str) -> None:
        assert not self.closed, "a closed messenger has no sockets"

    def close(self) -> None:
        self.closed = True
        for call in self.calls:
            if not call.done():
                call.set_exception(Unavailable("this process is closing its messenger"))


class World:
    """A client of one node."""

    def __init__(self) -> None:
        self.network: Any = Network()
        greeting = Greeting(self.network, [ADDRESS])
        greeting.nodes, greeting._unheard = [NODE], {ADDRESS}
        self.connection = Connection(self.network, ClientTurns(asyncio.get_running_loop()), greeting)
        self.client = AsyncClient(self.connection, [ADDRESS])
        self.catalog = CatalogClient(self.connection, LeaderTracker([NODE]))
        self.tracker = self.connection.member_lookup.tracker(TABLET, [(NODE, ADDRESS)])
        self.tablet = ConnectedTablet(self.connection, TABLET, SCHEMA, self.tracker)


CALLS: dict[str, Callable[[World], Awaitable[object]]] = {
    "page": lambda world: world.tablet.page(ScanSpec(), timeout_s=TIMEOUT_S),
    "split keys": lambda world: world.tablet.split_keys(ScanSpec(), 1 << 20, timeout_s=TIMEOUT_S),
    "open a tablet": lambda world: world.connection.tablet(TABLET, timeout_s=TIMEOUT_S),
    "known members": lambda world: world.connection.tablet(TABLET, members=[(NODE, ADDRESS)], timeout_s=TIMEOUT_S),
    "hosts": lambda world: world.client._hosts(TABLET, TIMEOUT_S),
    "tables": lambda world: world.catalog.list_tables(timeout_s=TIMEOUT_S),
    "a running table": lambda world: world.catalog.running("t", timeout_s=TIMEOUT_S),
    "an altered table": lambda world: world.client._until_altered(world.catalog, "t", TIMEOUT_S),
    "masters": lambda world: world.catalog.masters_view(timeout_s=TIMEOUT_S),
    "a master": lambda world: AsyncMasters(world.connection, world.catalog)._describe(NODE, 300_000),
    "holders": lambda world: world.connection.holders(TABLET, [(NODE, ADDRESS)]),
    "reach": lambda world: world.connection.reach(ADDRESS),
}


def run(story: Callable[[World], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await story(World())

    asyncio.run(bounded())


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_is_begun_on_a_closed_client_is_refused_and_asks_no_node(
    call: Callable[[World], Awaitable[object]],
) -> None:
    async def story(world: World) -> None:
        await world.client.close()
        with pytest.raises(Unavailable, match=r"^the client is closed$"):
            await call(world)
        assert world.network.calls == []

    run(story)


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("holders", "reach")])
def test_what_waits_for_an_answer_when_its_client_is_closed_ends_then(name: str) -> None:
    """A scan asked a closed messenger again and again until its timeout, and then blamed the nodes."""

    async def story(world: World) -> None:
        waiting = asyncio.ensure_future(CALLS[name](world))
        while not world.network.calls:
            await asyncio.sleep(0)
        asked = len(world.network.calls)
        await world.client.close()
        with pytest.raises(Unavailable, match=r"^the client is closed$"):
            await waiting
        assert len(world.network.calls) == asked

    run(story)


def test_rows_that_a_closed_client_did_not_send_are_not_of_unknown_outcome() -> None:
    async def story(world: World) -> None:
        await world.client.close()
        location = TableLocation("t", SCHEMA, PartitionSchema(), (TabletLocation(TABLET),))
        table = AsyncTable(location, [world.tablet], [ADDRESS], lambda: 1)  # type: ignore[list-item]
        result = await table.insert([{"id": 1, "value": 2.5}], errors="return")
        assert [(f.code, f.reason) for f in result.failures] == [("UNAVAILABLE", "the client is closed")]

    run(story)


def test_a_write_that_waits_ends_with_its_client_though_nobody_keeps_its_tablet() -> None:
    async def story(world: World) -> None:
        waiting = write_to(world.tablet, OpKind.INSERT, [(1, 2.5)])
        looked_up = world.connection.lookups(TABLET, SCHEMA).add([b"key"], None, TIMEOUT_S, lambda: world.tracker)
        while len(world.network.calls) < 2:
            await asyncio.sleep(0)
        del world.tablet
        gc.collect()
        await world.client.close()
        for future in (waiting, looked_up):
            with pytest.raises(Unavailable, match=r"^the client is closed$"):
                await future

    run(story)


def test_tables_that_are_opened_again_and_again_take_no_more_memory() -> None:
    """Each one left a writer and a queue of lookups with the connection, 8 KB, until the client was closed."""

    async def story(world: World) -> None:
        connection, before = world.connection, writers_and_queues()
        for _ in range(200):
            tablet = ConnectedTablet(connection, TABLET, SCHEMA, world.tracker)
            kept = SpreadTablet(tablet, connection, Nearness("", {}, set()))
        assert writers_and_queues() == (before[0] + 1, before[1] + 1), f"those of {kept} alone"

    run(story)


def writers_and_queues() -> tuple[int, int]:
    gc.collect()
    found = [type(one) for one in gc.get_objects()]
    return found.count(TabletWriter), found.count(LookupQueue)
