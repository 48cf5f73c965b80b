"""A client whose first nodes cannot serve connects to the other addresses that it was given."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from stelae.client import greeting
from stelae.client.connection import Connection
from stelae.client.greeting import Greeting
from stelae.client.leader_tracker import LeaderTracker
from stelae.client.turns import ClientTurns
from stelae.protocol.codec import encode
from stelae.protocol.tablet_messages import Description
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import Unavailable
from stelae.spi.ids import NodeId, TabletId
from stelae.wire.messenger import Response

FAST, SLOW = "127.0.0.1:1", "127.0.0.1:2"
NODES = {FAST: NodeId("1" * 32), SLOW: NodeId("2" * 32)}
SCHEMA = schema_from_plain({"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})


class Network:
    """A messenger of two nodes. The one at ``SLOW`` answers from the second hello on; only that one serves."""

    def __init__(self, slow_hellos: int = 1) -> None:
        self.hellos: list[str] = []
        self.asked: list[NodeId] = []
        self._slow_hellos = slow_hellos

    def connect(self, address: str, *, deadline_ms: int) -> asyncio.Future[NodeId]:
        self.hellos.append(address)
        future: asyncio.Future[NodeId] = asyncio.get_running_loop().create_future()
        if address == FAST or self.hellos.count(SLOW) > self._slow_hellos:
            future.set_result(NODES[address])
        elif len(self.hellos) > 2:
            future.set_exception(Unavailable("no answer"))
        return future

    async def call(self, node: NodeId, *_call: Any, **_more: Any) -> Response:
        self.asked.append(node)
        if node == NODES[FAST]:
            raise Unavailable("the replica has failed")
        members = tuple((node_id, address) for address, node_id in NODES.items())
        answer = Description(schema=SCHEMA.to_bytes(), members=members, leader=node)
        return Response(sender=node, body=[encode(answer)], fields={})

    def connected(self, _node_id: NodeId) -> None:
        """No link is up."""

    def add_peer(self, *_peer: str) -> None:
        """Nothing to connect."""


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "AFTER_FIRST_S", 0.0)


async def connected(network: Network) -> tuple[Connection, Greeting]:
    messenger: Any = network
    found = Greeting(messenger, [FAST, SLOW])
    await found.first(5.0)
    return Connection(messenger, ClientTurns(asyncio.get_running_loop()), found), found


def test_a_tablet_is_found_on_a_node_that_was_too_slow_when_the_client_connected() -> None:
    """The client once asked the only node that had answered, whose replica had failed, until its time was over."""

    async def story() -> None:
        network = Network()
        client, _ = await connected(network)
        assert client.nodes == [NODES[FAST]]
        await client.tablet(TabletId("t"), timeout_s=5.0)
        assert await client.tablet(TabletId("t"), timeout_s=5.0)
        assert client.nodes == [NODES[FAST], NODES[SLOW]]
        assert network.hellos == [FAST, SLOW, SLOW]

    asyncio.run(story())


def test_an_address_that_does_not_answer_is_tried_again_each_time_and_once_at_a_time() -> None:
    async def story() -> None:
        network = Network(slow_hellos=3)
        _, found = await connected(network)
        tracker = LeaderTracker(found.nodes)
        for tries in (2, 3):
            found.again(tracker)
            found.again(tracker)
            await asyncio.sleep(0)
            assert network.hellos.count(SLOW) == tries and tracker.members == [NODES[FAST]]
        found.again(tracker)
        await asyncio.sleep(0)
        assert tracker.members == [NODES[FAST], NODES[SLOW]]
        found.again(tracker)
        assert network.hellos.count(SLOW) == 4

    asyncio.run(story())


def test_a_caller_that_is_cancelled_leaves_no_error_that_is_never_asked_for() -> None:
    """Ctrl-C while a command connected printed "Future exception was never retrieved" of each address."""

    async def story() -> list[str]:
        reported: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
        connecting = asyncio.ensure_future(Connection.connect(["127.0.0.1:1", "127.0.0.1:1"]))
        await asyncio.sleep(0)
        connecting.cancel()
        await asyncio.wait([connecting])
        gc.collect()
        return reported

    assert asyncio.run(story()) == []
