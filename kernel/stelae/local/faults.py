"""What the demo kills while it loads, and how it sees that all is well again.

1. At 30 % of the rows the tablet server that leads most tablets. From 45 % of its rows on each tablet gets single rows
   alone, until others lead what it led, it is started again, and it holds all that it missed.
2. At 60 % the master that leads; at once a table is created, by what is left of the masters. From 75 % on there are
   single rows again, until the table runs, and the master is back and holds what it missed.

Both outages lie within the load, as it is held until they are over."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from stelae.client import AsyncClient
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.loading import Load
from stelae.local.node_process import NodeProcess
from stelae.local.replica_status import leaders, most_led, wait_for_successors, wait_until_caught_up
from stelae.local.report import Kill
from stelae.local.watcher import Watcher
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.tablet_messages import ReplicaReport
from stelae.spi.ids import NodeId, TabletId

FIRST_KILL, FIRST_HOLD = 0.30, 0.45
SECOND_KILL, SECOND_HOLD = 0.60, 0.75
LOOK_S = 0.1
"""How often it is looked who leads, so that the answer is there when a kill is due."""

TRIAL_TABLE = "made-without-its-leader"
CREATE_TIMEOUT_S = 20.0


class DemoFaults:
    """The kills of one load.

    Args:
        cluster: whose nodes are killed.
        client: of its masters.
        tablets: of the table that is loaded, in the order of the partitions.
        load: of it.
        watcher: is told what happens.
        outlive: nodes that are started again are to go on after this process.
    """

    def __init__(
        self,
        cluster: ClusterWithMasters,
        client: AsyncClient,
        tablets: Sequence[TabletId],
        load: Load,
        watcher: Watcher,
        *,
        outlive: bool,
    ) -> None:
        self._cluster = cluster
        self._client = client
        self._tablets = tablets
        self._load = load
        self._watcher = watcher
        self._outlive = outlive
        self._clock = asyncio.get_running_loop().time
        self.kills: list[Kill] = []

    async def run(self) -> None:
        """Kill, wait, start again, twice.

        Raises:
            StelaeError: something did not heal in time, or a node ended by itself.
        """
        self._load.hold(FIRST_HOLD)
        led = await self._kill_server()
        self._load.hold(SECOND_HOLD)
        await self._kill_master()
        first, second = self.kills
        places = [self._tablets.index(tablet_id) for tablet_id in led]
        first.unavailable_ms = round(self._load.longest_gap_ms(places, first.at, second.at))
        self._load.release()

    async def _kill_server(self) -> Collection[TabletId]:
        """Kill one, and return which tablets it led."""
        connection, servers = self._client.connection, self._cluster.servers
        node_id, led = most_led(await self._leaders_when_due(servers, FIRST_KILL), self._tablets)
        node, others = _parted(servers, node_id)
        kill = self._kill(node, f"which led {len(led)} of {len(self._tablets)} tablets", "no write was acknowledged")
        await wait_for_successors(connection, others, led, node)
        node.start(outlive=self._outlive)
        self._watcher.event(f"others lead its tablets; {node.name} starts again")
        await wait_until_caught_up(connection, servers, self._tablets, node)
        kill.within_load = self._load.running
        self._watcher.event(f"{node.name} holds all that it missed")
        return led

    async def _kill_master(self) -> None:
        connection, masters = self._client.connection, self._cluster.masters
        node_id, _ = most_led(await self._leaders_when_due(masters, SECOND_KILL), [SYSTEM_TABLET])
        node, _ = _parted(masters, node_id)
        kill = self._kill(node, "the leader of the masters", "no table could be created")
        await self._client.create_table(TRIAL_TABLE, {"id": "int64"}, "id", timeout_s=CREATE_TIMEOUT_S)
        kill.unavailable_ms = round((self._clock() - kill.at) * 1000)
        node.start(outlive=self._outlive)
        self._watcher.event(f"a table created at that moment is RUNNING; {node.name} starts again")
        await self._client.drop_table(TRIAL_TABLE)
        await wait_until_caught_up(connection, masters, [SYSTEM_TABLET], node)
        kill.within_load = self._load.running
        self._watcher.event(f"{node.name} holds all that it missed")

    async def _leaders_when_due(self, nodes: Sequence[NodeProcess], share: float) -> Mapping[TabletId, ReplicaReport]:
        """Wait until so much is loaded, and return who leads: looked up before, since a load does not wait for that."""
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
        # A load that was past it already, after a long outage, left no time to look.
        return found or await leaders(self._client.connection, nodes)

    def _kill(self, node: NodeProcess, who: str, missing: str) -> Kill:
        what = f"SIGKILL of {node.name}, {who}"
        kill = Kill(what=what, missing=missing, acked_at_kill=self._load.acked_count, at=self._clock())
        node.kill()
        self.kills.append(kill)
        self._watcher.event(f"{what}, at {kill.acked_at_kill:,} rows")
        return kill


def _parted(nodes: Sequence[NodeProcess], node_id: NodeId) -> tuple[NodeProcess, list[NodeProcess]]:
    """The node of that uuid, and all others."""
    others = [node for node in nodes if node.node_id != node_id]
    return next(node for node in nodes if node.node_id == node_id), others
