"""Three nodes in one process, on real disks and sockets, whose disks and clocks can be broken, and spare nodes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from stelae.client.connection import ConnectedTablet, Connection
from stelae.config.node_toml import parse_config
from stelae.config.observers import HookObserver
from stelae.config.registry import Registry
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import Instance, format_directory
from stelae.host.node import Node
from stelae.host.replica import Replica
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.local.ports import free_ports
from stelae.machine.files import RealFile, RealFiles
from stelae.machine.real import RealMachine
from stelae.machine.system_clock import SystemClock
from stelae.rows.limits import LimitSettings
from stelae.server.limits import batchers_of
from stelae.server.tserver import plugin as tserver
from stelae.spi.errors import ChangeNotYet, Full, StelaeError, StorageError, SyncFailed
from stelae.spi.ids import ClusterId, NodeId, TabletId
from stelae.spi.members import MemberChange, TabletConfig
from stelae.spi.services import Buffer
from stelae.spi.write import OpKind
from tests.tablet_rows import write_to

TABLET = TabletId("t")
CLUSTER = ClusterId("test")
ELECTION_TIMEOUT_MS = 300
PATIENT_MS = 1000
"""An election timeout for tests in which the leader must stay, although all nodes share one loop that is busy."""

WAIT_S = 60.0
"""Longest that any test waits for something to come true; reached only by a defect, even on a busy machine."""


class BreakableFile:
    """A real file whose writes fail while its ``Files`` are told to."""

    def __init__(self, file: RealFile, files: BreakableFiles) -> None:
        self._file = file
        self._files = files

    def pwritev(self, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
        self._files.check(self._file.path)
        return self._file.pwritev(buffers, offset, dsync=dsync)

    def sync(self, *, data_only: bool = False) -> None:
        self._files.check(self._file.path)
        self._file.sync(data_only=data_only)

    def preallocate(self, size: int) -> None:
        self._files.check(self._file.path)
        self._file.preallocate(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class BreakableFiles(RealFiles):
    """Real files; what is written below ``wals/`` fails with ``broken`` while that is set."""

    def __init__(self) -> None:
        self.broken: Callable[[str], StorageError] | None = None

    def check(self, path: str) -> None:
        if self.broken is not None and "/wals/" in path:
            raise self.broken(path)

    def create(self, path: str) -> Any:
        self.check(path)
        return BreakableFile(super().create(path), self)

    def open(self, path: str, *, writable: bool = False) -> Any:
        return BreakableFile(super().open(path, writable=writable), self)


def no_space(path: str) -> StorageError:
    return Full("no space left on device", path=path)


def sync_fails(path: str) -> StorageError:
    return SyncFailed("input/output error", path=path)


class SkewedClock(SystemClock):
    """The machine's clock, with a wall time that a test can shift."""

    def __init__(self) -> None:
        self.ahead_us = 0

    def wall_us(self) -> int:
        return super().wall_us() + self.ahead_us


class Cluster:
    """Three nodes, and ``spares`` that are no members of the tablet at first.

    ``nodes`` holds those that run, by node id; ``settings`` ends the file of each."""

    def __init__(
        self, root: Path, settings: str = "", election_timeout_ms: int = ELECTION_TIMEOUT_MS, *, spares: int = 0
    ) -> None:
        self.root = root
        self.settings = settings
        self.election_timeout_ms = election_timeout_ms
        self.ids = [NodeId(secrets.token_hex(16)) for _ in range(3 + spares)]
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(3 + spares)]
        self.files = {node: BreakableFiles() for node in self.ids}
        self.clocks = {node: SkewedClock() for node in self.ids}
        self.nodes: dict[NodeId, Node] = {}

    async def start(self, node_id: NodeId) -> Node:
        directory = self.root / node_id
        registry = Registry.installed()
        registry.register(tserver, "service.tserver")
        config = parse_config(self._toml(node_id), str(self.root / "node.toml"), registry, {"limits": LimitSettings})
        if not directory.exists():
            format_directory(
                RealFiles(),
                DirectoryLayout(str(directory)),
                Instance(node_id=node_id, cluster_id=CLUSTER, wal_engine=config.wal.name),
            )
        node = Node(
            config,
            services=registry.services(),
            machine=RealMachine(files=self.files[node_id], clock=self.clocks[node_id]),
            batcher=batchers_of(config),
            tablets=TabletLoader,
            observer=HookObserver(registry),
        )
        await node.start()
        self.nodes[node_id] = node
        return node

    async def stop(self, node_id: NodeId) -> None:
        await self.nodes.pop(node_id).stop()

    def leader(self) -> NodeId | None:
        """The node that leads and serves, if exactly one does."""
        found = [
            node_id
            for node_id, node in self.nodes.items()
            if (replica := node.replicas.get(TABLET)) is not None
            and replica.state.value == "RUNNING"
            and replica.status.role.value == "LEADER"
        ]
        return found[0] if len(found) == 1 else None

    async def leading(self) -> NodeId:
        """The leader. A busy machine may have lost it for a moment."""
        await until(lambda: self.leader() is not None)
        leader = self.leader()
        assert leader is not None
        return leader

    def others(self, node_id: NodeId) -> list[NodeId]:
        return [other for other in self.ids if other != node_id]

    def address(self, node_id: NodeId) -> str:
        return self.addresses[self.ids.index(node_id)]

    def _toml(self, node_id: NodeId) -> str:
        members = ", ".join(f'{{uuid = "{n}", address = "{self.address(n)}"}}' for n in self.ids[:3])
        return f"""
[node]
directory = "{self.root / node_id}"
listen = "{self.address(node_id)}"
[cluster]
id = "{CLUSTER}"
[tablet]
id = "{TABLET}"
key = ["id"]
columns = [{{name = "id", type = "int64"}}, {{name = "text", type = "string", nullable = true}}]
members = [{members}]
[consensus.raft]
election_timeout_ms = {self.election_timeout_ms}
{self.settings}
"""


@asynccontextmanager
async def running(
    root: Path, settings: str = "", election_timeout_ms: int = ELECTION_TIMEOUT_MS, *, spares: int = 0
) -> AsyncIterator[Cluster]:
    """Three running nodes that serve, and spares; all stopped at the end."""
    cluster = Cluster(root, settings, election_timeout_ms, spares=spares)
    try:
        for node_id in cluster.ids:
            await cluster.start(node_id)
        await until(lambda: cluster.leader() is not None)
        yield cluster
    finally:
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def connected(cluster: Cluster) -> AsyncIterator[ConnectedTablet]:
    """A client's view of the tablet."""
    async with await Connection.connect(cluster.addresses) as client:
        yield await client.tablet(TABLET)


async def insert(tablet: ConnectedTablet, ids: Sequence[int]) -> None:
    """Insert one row per operation, all in flight together; each must be taken."""
    futures = [write_to(tablet, OpKind.INSERT, [(n, f"row {n}")], timeout_s=WAIT_S) for n in ids]
    for result in await asyncio.gather(*futures):
        assert not result.refusal and not result.errors, result


async def read_ids(tablet: ConnectedTablet) -> list[int]:
    """The ids of all rows, in order."""
    found: list[int] = []
    async for batch in tablet.scan():
        for row_id, text in batch.to_rows():
            assert text == f"row {row_id}"
            found.append(row_id)
    return found


def agree(cluster: Cluster) -> bool:
    """True if every running replica has applied the same entries to the same effect."""
    replicas = [node.replicas[TABLET] for node in cluster.nodes.values()]
    states = {(r.applier.applied, r.applier.store.checksum(None)) for r in replicas}
    return len(states) == 1


async def flushed(cluster: Cluster) -> None:
    """Wait until every running replica has applied the same, and has all of it in files."""
    replicas = [node.replicas[TABLET] for node in cluster.nodes.values()]
    await until(lambda: agree(cluster))
    await until(lambda: all(one.flusher.superblock.flushed == one.applier.store.applied for one in replicas))
    await until(lambda: all(not one.flusher.busy for one in replicas))


async def changed(replica: Replica, change: MemberChange) -> TabletConfig:
    """Change the members by the leader; return the config. One that was just elected has heard no voter yet, and says
    to ask again."""
    while True:
        done: asyncio.Future[TabletConfig | StelaeError] = asyncio.get_running_loop().create_future()
        replica.change_members(change, done.set_result)
        found = await done
        if isinstance(found, TabletConfig):
            return found
        if not isinstance(found, ChangeNotYet):
            raise found
        await asyncio.sleep(0.05)
