"""Kills two nodes while the demo loads, starts them again, and waits until the cluster has recovered.

1. At 30 % of the rows, it kills the tablet server that leads the most tablets. When other nodes lead these tablets, it
   starts the server again and waits until the server has caught up. If a tablet reaches 45 % of its rows before that,
   its load slows down to single rows.
2. At 60 % of the rows, it kills the leading master, and at once creates a table through the other masters. When the
   table runs, it starts the master again and waits until the master has caught up. If a tablet reaches 75 % of its rows
   before that, its load slows down to single rows.

So both outages end before the load does."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from stelae.client import AsyncClient
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.demo_listener import DemoListener
from stelae.local.demo_load import DemoLoad
from stelae.local.demo_report import Kill
from stelae.local.node_process import NodeProcess
from stelae.local.replica_status import leaders, most_led, wait_for_successors, wait_until_caught_up
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.tablet_messages import ReplicaReport
from stelae.spi.ids import NodeId, TabletId

FIRST_KILL, FIRST_SLOWDOWN = 0.30, 0.45
SECOND_KILL, SECOND_SLOWDOWN = 0.60, 0.75
LOOK_S = 0.1
"""Pause between two lookups of the leaders. The answer must be known when a kill is due."""

TRIAL_TABLE = "made-without-its-leader"
CREATE_TIMEOUT_S = 20.0


class DemoKills:
    """The kills during one load.

    Args:
        cluster: the cluster whose nodes are killed.
        client: a client of the cluster.
        tablets: the tablets of the table that is loaded, in the order of the partitions.
        load: the load of the table.
        listener: gets the events.
        outlive: whether the nodes that are started again continue to run after this process.
    """

    def __init__(
        self,
        cluster: ClusterWithMasters,
        client: AsyncClient,
        tablets: Sequence[TabletId],
        load: DemoLoad,
        listener: DemoListener,
        *,
        outlive: bool,
    ) -> None:
        self._cluster = cluster
        self._client = client
        self._tablets = tablets
        self._load = load
        self._listener = listener
        self._outlive = outlive
        self._clock = asyncio.get_running_loop().time
        self.kills: list[Kill] = []

    async def run(self) -> None:
        """Kill two nodes, one after the other, and start each again.

        Raises:
            StelaeError: the cluster did not recover in time, or a node ended by itself.
        """
        self._load.slow_down_at(FIRST_SLOWDOWN)
        led = await self._kill_server()
        self._load.slow_down_at(SECOND_SLOWDOWN)
        await self._kill_master()
        first, second = self.kills
        partitions = [self._tablets.index(tablet_id) for tablet_id in led]
        first.unavailable_ms = round(self._load.longest_gap_ms(partitions, first.at, second.at))
        self._load.full_speed()

    async def _kill_server(self) -> Collection[TabletId]:
        """Kill the tablet server that leads the most tablets, start it again, and return the tablets that it led."""
        connection, servers = self._client.connection, self._cluster.servers
        node_id, led = most_led(await self._leaders_when_due(servers, FIRST_KILL), self._tablets)
        node, others = _parted(servers, node_id)
        kill = self._kill(node, f"which led {len(led)} of {len(self._tablets)} tablets", "no write was acknowledged")
        await wait_for_successors(connection, others, led, node)
        node.start(outlive=self._outlive)
        self._listener.event(f"other nodes lead its tablets; {node.name} starts again")
        await wait_until_caught_up(connection, servers, self._tablets, node)
        kill.within_load = self._load.running
        self._listener.event(f"{node.name} has caught up")
        return led

    async def _kill_master(self) -> None:
        connection, masters = self._client.connection, self._cluster.masters
        node_id, _ = most_led(await self._leaders_when_due(masters, SECOND_KILL), [SYSTEM_TABLET])
        node, _ = _parted(masters, node_id)
        kill = self._kill(node, "the leader of the masters", "no table could be created")
        await self._client.create_table(TRIAL_TABLE, {"id": "int64"}, "id", timeout_s=CREATE_TIMEOUT_S)
        kill.unavailable_ms = round((self._clock() - kill.at) * 1000)
        node.start(outlive=self._outlive)
        self._listener.event(f"a table created at that moment is RUNNING; {node.name} starts again")
        await self._client.drop_table(TRIAL_TABLE)
        await wait_until_caught_up(connection, masters, [SYSTEM_TABLET], node)
        kill.within_load = self._load.running
        self._listener.event(f"{node.name} has caught up")

    async def _leaders_when_due(self, nodes: Sequence[NodeProcess], share: float) -> Mapping[TabletId, ReplicaReport]:
        """Wait until a share of the rows is loaded, and return the leaders as of shortly before.

        The leaders are looked up in advance, because the load continues during a lookup."""
        found: Mapping[TabletId, ReplicaReport] = {}

        async def look() -> None:
            nonlocal found
            while True:
                found = await leaders(self._client.connection, nodes)
                await asyncio.sleep(LOOK_S)

        looking = asyncio.create_task(look())
        try:
            await self._load.reached(share)
        finally:
            looking.cancel()
        # The load had already reached the share, so there was no time for a lookup.
        return found or await leaders(self._client.connection, nodes)

    def _kill(self, node: NodeProcess, who: str, missing: str) -> Kill:
        what = f"SIGKILL of {node.name}, {who}"
        kill = Kill(what=what, missing=missing, acked_at_kill=self._load.acked_count, at=self._clock())
        node.kill()
        self.kills.append(kill)
        self._listener.event(f"{what}, at {kill.acked_at_kill:,} rows")
        return kill


def _parted(nodes: Sequence[NodeProcess], node_id: NodeId) -> tuple[NodeProcess, list[NodeProcess]]:
    """Return the node with a uuid, and all others."""
    others = [node for node in nodes if node.node_id != node_id]
    return next(node for node in nodes if node.node_id == node_id), others
