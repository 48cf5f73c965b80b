"""A client whose first nodes cannot serve connects to the other addresses that it was given."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from stelae.client import greeting, one_cluster
from stelae.client.connection import Connection
from stelae.client.greeting import Greeting
from stelae.client.leader_tracker import LeaderTracker
from stelae.client.turns import ClientTurns
from stelae.protocol.codec import encode
from stelae.protocol.masters_messages import MASTERS, MastersView
from stelae.protocol.tablet_messages import Description
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import StelaeError, Unavailable
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import Member, TabletConfig
from stelae.wire.messenger import Response
from stelae.wire.refusals import UnknownKind, WrongCluster

FAST, SLOW = "127.0.0.1:1", "127.0.0.1:2"
NODES = {FAST: NodeId("1" * 32), SLOW: NodeId("2" * 32)}
SCHEMA = schema_from_plain({"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})


class Network:
    """A messenger of two nodes. The one at ``SLOW`` answers from the second hello on; only that one serves."""

    def __init__(self, slow_hellos: int = 1, *, refusal: StelaeError | None = None, **cluster_created_us: int) -> None:
        self.hellos: list[str] = []
        self.asked: list[NodeId] = []
        self._slow_hellos = slow_hellos
        self._refusal = refusal  #: What a hello to ``SLOW`` gets in place of its answer.
        self.cluster_created_us = {
            NODES[FAST]: cluster_created_us.get("fast", 0),
            NODES[SLOW]: cluster_created_us.get("slow", 0),
        }
        self.hearsay = False  #: Whether the slow node is a master that waits to join.
        self.servers = False  #: Whether both are tablet servers.
        self.starting = 0  #: How often the fast node cannot say yet of which cluster it is.
        self.closed = False

    def connect(self, address: str, *, deadline_ms: int) -> asyncio.Future[NodeId]:
        self.hellos.append(address)
        future: asyncio.Future[NodeId] = asyncio.get_running_loop().create_future()
        if address == SLOW and self._refusal is not None and self.hellos.count(SLOW) > self._slow_hellos:
            future.set_exception(self._refusal)
        elif address == FAST or self.hellos.count(SLOW) > self._slow_hellos:
            future.set_result(NODES[address])
        elif len(self.hellos) > 2:
            future.set_exception(Unavailable("no answer"))
        return future

    async def call(self, node: NodeId, kind: str, *_call: Any, **_more: Any) -> Response:
        if kind == MASTERS:
            return Response(sender=node, body=[encode(self._view(node))], fields={})
        self.asked.append(node)
        if node == NODES[FAST]:
            raise Unavailable("the replica has failed")
        members = tuple((node_id, address) for address, node_id in NODES.items())
        answer = Description(schema=SCHEMA.to_bytes(), members=members, leader=node)
        return Response(sender=node, body=[encode(answer)], fields={})

    def _view(self, node: NodeId) -> MastersView:
        cluster_created_us = self.cluster_created_us[node]
        if not cluster_created_us:
            raise UnknownKind("this node knows no masters")
        starts = node == NODES[FAST] and self.starting > 0
        self.starting -= starts
        master = NodeId("3" * 32) if self.servers else node
        config = TabletConfig(op_id=OpId(1, 1), members=(Member(node_id=master, address=FAST),))
        return MastersView(
            node_id=node,
            config=config,
            leader=None,
            cluster_created_us=0 if starts else cluster_created_us,
            hearsay=self.hearsay and node == NODES[SLOW],
        )

    def close(self) -> None:
        self.closed = True

    def connected(self, _node_id: NodeId) -> None:
        """No link is up."""

    def add_peer(self, *_peer: str) -> None:
        """Nothing to connect."""


async def turns() -> None:
    """Let everything happen that waits for no clock."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_cluster, "AGAIN_S", 0.0)
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
        await turns()
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


ONE, TWO = 1_700_000_000_000_000, 1_700_000_000_000_001
OTHER_ID = WrongCluster("the sender is a node of cluster 'two'; this is 'one': check the addresses")


def test_addresses_of_clusters_with_different_ids_are_refused_with_both() -> None:
    """The client used whichever answered first, so a write went to a cluster by chance."""
    with pytest.raises(WrongCluster, match=f"{FAST} and {SLOW} are of different clusters .*'two'.*; connect to nodes"):
        asyncio.run(connected(Network(slow_hellos=0, refusal=OTHER_ID)))


@pytest.mark.parametrize("starting", [0, 3])
def test_addresses_of_clusters_with_one_id_are_refused_by_their_creation(starting: int) -> None:
    """The fast node is asked again while its catalog is being loaded."""
    network = Network(slow_hellos=0, fast=ONE, slow=TWO)
    network.starting = starting
    told = (
        f"two clusters have one id: {FAST} is of that created at .*000000 UTC and {SLOW} .*000001 UTC; connect to nodes"
    )
    with pytest.raises(WrongCluster, match=told):
        asyncio.run(connected(network))


def test_nodes_of_one_cluster_and_nodes_that_know_no_masters_are_not_refused() -> None:
    for cluster_created_us in ({"fast": ONE, "slow": ONE}, {"fast": ONE}, {}):
        client, _ = asyncio.run(connected(Network(slow_hellos=0, **cluster_created_us)))
        assert set(client.nodes) == set(NODES.values())


def test_a_master_that_waits_to_join_and_repeats_what_another_cluster_says_is_not_refused() -> None:
    """Its file lists the wrong masters. What it says of them does not count."""
    network = Network(slow_hellos=0, fast=ONE, slow=TWO)
    network.hearsay = True
    asyncio.run(connected(network))


def test_tablet_servers_alone_may_be_of_different_creations() -> None:
    """Some are not handed to the masters of a rebuilt catalog yet. Their tablets could not be recovered meanwhile."""
    network = Network(slow_hellos=0, fast=ONE, slow=TWO)
    network.servers = True
    asyncio.run(connected(network))


@pytest.mark.parametrize(
    "network", [Network(refusal=OTHER_ID), Network(fast=ONE, slow=TWO)], ids=["other id", "same id"]
)
def test_a_client_closes_itself_if_a_late_address_is_of_another_cluster(network: Network) -> None:
    """It may have heard the wrong one first."""

    async def story() -> None:
        client, found = await connected(network)
        client.check_open()
        tracker = LeaderTracker(found.nodes)
        found.again(tracker)
        await turns()
        assert client.closed and network.closed and tracker.members == [NODES[FAST]]
        for _ in range(2):
            with pytest.raises(WrongCluster, match=f"{FAST}.*{SLOW}"):
                client.check_open()
        with pytest.raises(WrongCluster):
            await client.tablet(TabletId("t"), timeout_s=5.0)

    asyncio.run(story())
