"""Breaks three nodes while the demo loads, and waits each time until the cluster has recovered.

1. At 20 % of the rows, it kills the tablet server that leads the most tablets. When other nodes lead these tablets, it
   starts the server again and waits until the server has caught up. If a tablet reaches 30 % of its rows before that,
   its load slows down to single rows.
2. At 50 % of the rows, it kills the leading master, and at once creates a table through the other masters. When the
   table runs, it starts the master again and waits until the master has caught up. If a tablet reaches 60 % of its rows
   before that, its load slows down to single rows.
3. At 75 % of the rows, it kills the tablet server that leads the most tablets, and destroys its directory. A new tablet
   server joins with an empty disk. The masters replace the lost replicas there. The load slows down at 83 % of a
   tablet's rows until every tablet has all of its replicas again.

So all outages end before the load does."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Collection, Mapping, Sequence

from stelae.client import AsyncClient
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.demo_listener import DemoListener
from stelae.local.demo_load import DemoLoad
from stelae.local.demo_report import DemoEvent, DemoEventKind, Kill
from stelae.local.node_process import NodeProcess
from stelae.local.replica_status import leaders, most_led, wait_for_successors, wait_until_caught_up
from stelae.protocol.catalog_names import SYSTEM_TABLET, ServerMode
from stelae.protocol.master_messages import SetServerMode
from stelae.protocol.tablet_messages import ReplicaReport
from stelae.spi.errors import Unavailable
from stelae.spi.ids import NodeId, TabletId

FIRST_KILL, FIRST_SLOWDOWN = 0.20, 0.30
SECOND_KILL, SECOND_SLOWDOWN = 0.50, 0.60
THIRD_KILL, THIRD_SLOWDOWN = 0.75, 0.83
"""Between a slowdown and the next kill there is room for what a slow load sends while a busy machine recovers."""

LOOK_S = 0.1
"""Pause between two lookups of the leaders. The answer must be known when a kill is due."""

TRIAL_TABLE = "made-without-its-leader"
CREATE_TIMEOUT_S = 20.0

HEAL_TIMEOUT_S = 60.0
"""Longest time until every tablet has all of its replicas again, in seconds."""

POLL_S = 0.1


class DemoKills:
    """The kills during one load.

    Args:
        cluster: the cluster whose nodes are killed.
        client: a client of the cluster.
        table: the name of the table that is loaded.
        tablets: its tablets, in the order of the partitions.
        load: the load of the table.
        listener: gets the events.
        outlive: whether the nodes that are started again continue to run after this process.
    """

    def __init__(
        self,
        cluster: ClusterWithMasters,
        client: AsyncClient,
        table: str,
        tablets: Sequence[TabletId],
        load: DemoLoad,
        listener: DemoListener,
        *,
        outlive: bool,
    ) -> None:
        self._cluster = cluster
        self._client = client
        self._table = table
        self._tablets = tablets
        self._load = load
        self._listener = listener
        self._outlive = outlive
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()
        self.events: list[DemoEvent] = []
        self.kills: list[Kill] = []
        self.healed_ms = 0
        """How long tablets had fewer replicas than wanted after the third kill."""

    async def run(self) -> None:
        """Kill two nodes, one after the other, and start each again; then destroy one, and let another one join.

        Raises:
            StelaeError: the cluster did not recover in time, or a node ended by itself.
        """
        self._load.slow_down_at(FIRST_SLOWDOWN)
        led = await self._kill_server()
        self._load.slow_down_at(SECOND_SLOWDOWN)
        await self._kill_master()
        self._load.slow_down_at(THIRD_SLOWDOWN)
        lost = await self._destroy_server()
        first, second, third = self.kills
        first.unavailable_ms = self._gap_ms(led, first.at, second.at)
        third.unavailable_ms = self._gap_ms(lost, third.at, third.at + self.healed_ms / 1000)
        self._load.full_speed()

    def _gap_ms(self, tablets: Collection[TabletId], since: float, until: float) -> int:
        partitions = [self._tablets.index(tablet_id) for tablet_id in tablets]
        return round(self._load.longest_gap_ms(partitions, since, until))

    async def _kill_server(self) -> Collection[TabletId]:
        """Kill the tablet server that leads the most tablets, start it again, and return the tablets that it led."""
        connection, servers = self._client.connection, self._cluster.servers
        node_id, led = most_led(await self._leaders_when_due(servers, FIRST_KILL), self._tablets)
        node, others = _parted(servers, node_id)
        who = f"which led {len(led)} of {len(self._tablets)} tablets"
        kill = self._kill(node, DemoEventKind.SERVER_KILLED, who, "no write was acknowledged")
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
        who = "the leader of the masters"
        kill = self._kill(node, DemoEventKind.MASTER_KILLED, who, "no table could be created")
        await self._client.create_table(TRIAL_TABLE, {"id": "int64"}, "id", timeout_s=CREATE_TIMEOUT_S)
        kill.unavailable_ms = round((self._clock() - kill.at) * 1000)
        node.start(outlive=self._outlive)
        self._listener.event(f"a table created at that moment is RUNNING; {node.name} starts again")
        await self._client.drop_table(TRIAL_TABLE)
        await wait_until_caught_up(connection, masters, [SYSTEM_TABLET], node)
        kill.within_load = self._load.running
        self._listener.event(f"{node.name} has caught up")

    async def _destroy_server(self) -> Collection[TabletId]:
        """Kill the tablet server that leads the most tablets, remove its directory, and start a new server.

        Returns the tablets that it led, once all tablets have their replicas again."""
        connection, cluster = self._client.connection, self._cluster
        node_id, led = most_led(await self._leaders_when_due(cluster.servers, THIRD_KILL), self._tablets)
        node, others = _parted(cluster.servers, node_id)
        who = f"which led {len(led)} tablets; its disk is lost"
        kill = self._kill(node, DemoEventKind.DISK_LOST, who, "no write was acknowledged")
        kill.bounded = False  # Meanwhile a node starts, and others copy to it: that takes all of a small machine.
        shutil.rmtree(node.directory)
        await wait_for_successors(connection, others, led, node)
        spare = cluster.add_server()
        cluster.remove_server(node)
        spare.start(outlive=self._outlive)
        self._note(DemoEventKind.SERVER_JOINED, spare)
        self._listener.event(f"the directory of {node.name} is destroyed; {spare.name} joins with an empty one")
        await self._until_whole(node_id)
        await wait_until_caught_up(connection, cluster.servers, self._tablets, spare)
        self.healed_ms = round((self._clock() - kill.at) * 1000)
        kill.within_load = self._load.running
        self._listener.event(f"every tablet has all of its replicas again, after {self.healed_ms / 1000:.1f} s")
        assert self._client.catalog is not None
        await self._client.catalog.change(SetServerMode(node_id=node_id, mode=ServerMode.RETIRING))
        return led

    async def _until_whole(self, lost: NodeId) -> None:
        """Wait until the masters have replaced every replica of a server.

        Raises:
            Unavailable: they have not in time.
            NodeExited: a node has ended.
        """
        assert self._client.catalog is not None
        deadline = self._clock() + HEAL_TIMEOUT_S
        while True:
            self._cluster.check()
            found = await self._client.catalog.get_table(self._table)
            voters = [{node for node, _ in t.members if node not in t.learners} - {lost} for t in found.tablets]
            waiting = [t for t in found.tablets if lost in {node for node, _ in t.members} or t.learners]
            if not waiting and all(len(nodes) == found.replication_factor for nodes in voters):
                return
            if self._clock() > deadline:
                fact = f"{len(waiting)} of {len(found.tablets)} tablets lack a replica"
                raise Unavailable(f"{fact} {HEAL_TIMEOUT_S:.0f} s after a server was lost")
            await asyncio.sleep(POLL_S)

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

    def _note(self, kind: DemoEventKind, node: NodeProcess) -> None:
        at_ms = round((self._clock() - self._began) * 1000)
        self.events.append(DemoEvent(kind=kind, node=node.name, at_ms=at_ms, acked=self._load.acked_count))

    def _kill(self, node: NodeProcess, kind: DemoEventKind, who: str, missing: str) -> Kill:
        what = f"SIGKILL of {node.name}, {who}"
        kill = Kill(what=what, missing=missing, acked_at_kill=self._load.acked_count, at=self._clock())
        node.kill()
        self._note(kind, node)
        self.kills.append(kill)
        self._listener.event(f"{what}, at {kill.acked_at_kill:,} rows")
        return kill


def _parted(nodes: Sequence[NodeProcess], node_id: NodeId) -> tuple[NodeProcess, list[NodeProcess]]:
    """Return the node with a uuid, and all others."""
    others = [node for node in nodes if node.node_id != node_id]
    return next(node for node in nodes if node.node_id == node_id), others
