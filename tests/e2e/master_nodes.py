"""Masters and tablet servers in one process, on real disks and sockets."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from stelae.config.node_toml import parse_config
from stelae.config.observers import HookObserver
from stelae.config.registry import Registry
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import Instance, format_directory
from stelae.host.node import Node
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.local.ports import free_ports
from stelae.machine.files import RealFiles
from stelae.machine.real import RealMachine
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.rows.limits import LimitSettings
from stelae.server.limits import batchers_of
from stelae.server.master import plugin as master
from stelae.server.master.core.master_core import MasterCore
from stelae.server.master.driver.first_start import SystemTabletLoader
from stelae.server.master.driver.master import Master
from stelae.server.master.role import as_master
from stelae.server.master.settings import MasterSettings
from stelae.server.tserver import plugin as tserver
from stelae.server.tserver.settings import TabletServerSettings
from stelae.spi.ids import ClusterId, NodeId
from tests.e2e.nodes import ELECTION_TIMEOUT_MS, WAIT_S

CLUSTER = ClusterId("test")
SECTIONS = {"master": MasterSettings, "limits": LimitSettings, "tserver": TabletServerSettings}


class Cluster:
    """Masters and tablet servers; ``nodes`` holds those that run, ``lists`` whom a node takes for the masters."""

    def __init__(
        self, root: Path, masters: int, servers: int, settings: str = "", *, cluster_id: ClusterId = CLUSTER
    ) -> None:
        self.cluster_id = cluster_id
        self.root = root
        self.settings = settings
        self.ids = [NodeId(secrets.token_hex(16)) for _ in range(masters + servers)]
        ports = free_ports(masters + servers)
        self.addresses = dict(zip(self.ids, (f"127.0.0.1:{port}" for port in ports), strict=True))
        self.masters, self.servers = self.ids[:masters], self.ids[masters:]
        self.first = list(self.masters)  #: Those that every ``node.toml`` lists.
        self.nodes: dict[NodeId, Node] = {}
        self.lists: dict[NodeId, list[NodeId]] = {}
        self.by_name = False  #: Whether masters are listed by a name, and listen on its address.

    def new_master(self) -> NodeId:
        """Return one more master, which no list has. It is not started."""
        node_id = NodeId(secrets.token_hex(16))
        self.addresses[node_id] = f"127.0.0.1:{free_ports(1)[0]}"
        self.masters.append(node_id)
        return node_id

    async def start(self, node_id: NodeId) -> None:
        directory = self.root / node_id
        registry = Registry.installed()
        registry.register(tserver, "service.tserver")
        is_master = node_id in self.masters
        if is_master:
            registry.register(master, "service.master")
        config = parse_config(self._toml(node_id), str(self.root / "node.toml"), registry, SECTIONS)
        if is_master:
            config = as_master(config, "node.toml")
        if not directory.exists():
            format_directory(
                RealFiles(),
                DirectoryLayout(str(directory)),
                Instance(node_id=node_id, cluster_id=self.cluster_id, wal_engine=config.wal.name),
            )
        node = Node(
            config,
            services=registry.services(),
            machine=RealMachine(),
            batcher=batchers_of(config),
            tablets=SystemTabletLoader if is_master else TabletLoader,
            observer=HookObserver(registry),
        )
        await node.start()
        self.nodes[node_id] = node

    async def stop(self, node_id: NodeId) -> None:
        await self.nodes.pop(node_id).stop()

    def leader(self) -> NodeId | None:
        """The master that leads and serves."""
        running = (m for m in self.masters if m in self.nodes and self._master(m).core is not None)
        return next((m for m in running if self.core(m).status().serving), None)

    async def leading(self) -> NodeId:
        """The master that leads and serves. A busy machine may have lost it for a moment."""
        await until(lambda: self.leader() is not None)
        leader = self.leader()
        assert leader is not None
        return leader

    def core(self, node_id: NodeId) -> MasterCore:
        """The core of a master that has begun."""
        core = self.core_of(node_id)
        assert core is not None
        return core

    def core_of(self, node_id: NodeId) -> MasterCore | None:
        """The core of a master, or ``None`` if it has not begun."""
        return self._master(node_id).core

    def was_removed(self, node_id: NodeId) -> bool:
        """Whether a master knows a config of the masters without it."""
        return self._master(node_id)._watch.removed

    def late(self, node_id: NodeId) -> str:
        """What a master waits for before it makes its system tablet."""
        tablets = self.nodes[node_id].tablets
        assert isinstance(tablets, TabletLoader)
        return tablets.delayed.get(SYSTEM_TABLET, "")

    def _master(self, node_id: NodeId) -> Master:
        return next(service for service in self.nodes[node_id]._services if isinstance(service, Master))

    def _toml(self, node_id: NodeId) -> str:
        listed = self.lists.get(node_id, self.first)
        members = ", ".join(f'{{uuid = "{m}", address = "{self.addresses[m]}"}}' for m in listed)
        address = self.addresses[node_id]
        listen = f'"{address}"'
        if self.by_name:
            listen = f'"{address.replace("localhost", "127.0.0.1")}"\nadvertise = "{address}"'
        return f"""
[node]
directory = "{self.root / node_id}"
listen = {listen}
[cluster]
id = "{self.cluster_id}"
[masters]
members = [{members}]
[consensus.raft]
election_timeout_ms = {ELECTION_TIMEOUT_MS}
{self.settings}
"""


@asynccontextmanager
async def running(root: Path, masters: int = 3, servers: int = 3, settings: str = "") -> AsyncIterator[Cluster]:
    """A cluster whose masters serve; all stopped at the end."""
    cluster = Cluster(root, masters, servers, settings)
    try:
        for node_id in cluster.ids:
            await cluster.start(node_id)
        await until(lambda: cluster.leader() is not None)
        yield cluster
    finally:
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)


async def until_every_replica_runs(cluster: Cluster) -> None:
    """Wait until every member of each tablet on the servers has its replica: a table is there with a majority."""

    def all_run() -> bool:
        nodes = [cluster.nodes[server] for server in cluster.servers if server in cluster.nodes]
        held = [(tablet, replica) for node in nodes for tablet, replica in node.replicas.items()]
        return all(
            tablet in cluster.nodes[member.node_id].replicas
            for tablet, replica in held
            for member in replica.status.committed_config.members
        )

    await until(all_run)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)
