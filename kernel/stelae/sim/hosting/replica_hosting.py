"""The replica of one simulated node: recovered at start, or created because a leader asks for it.

Production's ``NewReplicas`` and ``TabletManager`` do the work, on virtual pools and the virtual disk. A request may be
lost, doubled or late, and power may be lost between any two disk operations of a creation. Whoever lets nodes get
replicas in further ways (a copy, a log without rows) adds the message and its service here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from stelae.host.assembly import Engines, RecoveredTablet
from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.hybrid_clock import HybridClock
from stelae.host.log_writer import LogWriter
from stelae.host.node import Node
from stelae.host.peer_traffic import PeerTraffic
from stelae.host.replica import Replica
from stelae.host.superblock import SuperblockFile
from stelae.lifecycle.abandoned_copy import is_first_copy
from stelae.lifecycle.startup_decisions import StartupAction
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.lifecycle.tablet_recovery import recover
from stelae.server.tserver.new_replicas import NewReplicas
from stelae.sim.disk import VirtualDisk
from stelae.sim.hosting.replica_builder import ReplicaBuilder
from stelae.sim.hosting.replica_on_disk import ReplicaOnDisk
from stelae.sim.node_links import FramesInFlight, NodeLink
from stelae.sim.process import Process, VirtualPool
from stelae.spi.errors import StelaeError, StorageError
from stelae.spi.ids import NodeId, TabletId


@dataclass(frozen=True, slots=True)
class _EngineName:
    name: str


@dataclass(frozen=True, slots=True)
class _Config:
    """The part of ``NodeConfig`` that the services need. The node is no master, so it has no configured tablet."""

    consensus: _EngineName
    wal: _EngineName
    tablet: None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _HostingNode:
    """The part of a node that ``TabletManager`` and ``NewReplicas`` need."""

    node_id: NodeId
    config: _Config
    files: VirtualDisk
    layout: DirectoryLayout
    engines: Engines
    metadata_pool: VirtualPool
    scans: VirtualPool
    writer: LogWriter
    turns: Process
    time: HybridClock
    peers: PeerTraffic
    messenger: ReplicaHosting
    host: Callable[..., None]

    @property
    def replicas(self) -> Mapping[TabletId, Replica]:
        """The replicas of the node."""
        return self.peers.replicas


class ReplicaHosting:
    """Recovers and creates the replica of one node, for one run of its process.

    Args:
        names: the names of the node's log engine and consensus engine.
        hosted: called with a replica that was created and is about to start.
    """

    def __init__(
        self,
        builder: ReplicaBuilder,
        loader: TabletLoader,
        link: NodeLink,
        tablet: TabletId,
        *,
        names: tuple[str, str],
        hosted: Callable[[Replica], None],
    ) -> None:
        self._builder = builder
        self._loader = loader
        self._link = link
        self._tablet = tablet
        self._names = names
        self._hosted = hosted

    def recover(self) -> RecoveredTablet | None:
        """Recover the tablet, if the disk has it. Blocks.

        Raises:
            StorageError: it cannot be recovered, or a part of it is lost.
        """
        it = self._builder
        if not it.disk.exists(it.layout.superblock_of(self._tablet)):
            found = self._loader.inspect(self._tablet, it.wal.logs())
            it.facts.replica_found(it.node, exists=False)
            if found.decision.action is not StartupAction.NOTHING:
                raise StorageError(f"the tablet has no superblock: {found.failure}")
            return None
        block = SuperblockFile(it.disk, it.layout, self._tablet).load()
        if is_first_copy(block):
            self._undo_creation()
            it.facts.replica_found(it.node, exists=False)
            return None
        it.facts.replica_found(it.node, exists=True)
        record = ConsensusMetadata(it.disk, it.layout, self._tablet).load()
        return self._opened(recover(block, record, it.engines, it.layout.data_of(self._tablet)))

    def _undo_creation(self) -> None:
        """Remove what an interrupted creation of a replica without rows has left."""
        it = self._builder
        found = self._loader.inspect(self._tablet, it.wal.logs())
        if found.decision.action is not StartupAction.REMOVE:
            raise StorageError(f"an unfinished creation is not removed: {found.failure}")
        self._loader.end_interrupted(found)
        if (failure := self._loader.failed.get(self._tablet)) is not None:
            raise StorageError(failure)
        it.facts.coverage.hit("witness.creation_undone")

    def _opened(self, recovered: RecoveredTablet) -> RecoveredTablet:
        """Report the flushed op id of a replica without rows. The store of other replicas reports its own."""
        block = recovered.superblock
        if block.log_only:
            self._builder.facts.store_opened(self._builder.node, block.flushed)
        return recovered

    def listen(self) -> None:
        """Create a replica when a leader asks for it."""
        builder = self._builder
        wal, consensus = (_EngineName(name) for name in self._names)
        node = cast(
            Node,
            _HostingNode(
                node_id=builder.node_id,
                config=_Config(consensus, wal),
                files=builder.disk,
                layout=builder.layout,
                engines=builder.engines,
                metadata_pool=builder.pool,
                scans=builder.pool,
                writer=builder.writer,
                turns=builder.process,
                time=builder.clock,
                peers=builder.traffic,
                messenger=self,
                host=self._host,
            ),
        )
        NewReplicas(node, TabletManager(node, self._loader)).start()

    def on_message(self, kind: str, handler: Callable[[FramesInFlight], None]) -> None:
        """Register the handler of a message (the part of ``Messenger`` that services use), and count its messages."""

        def arrived(message: FramesInFlight) -> None:
            self._count(kind)
            handler(message)

        self._link.on_message(kind, arrived)

    def _count(self, kind: str) -> None:
        """Count a message, and in which unusual state of the node it arrives."""
        coverage, node, world = self._builder.facts.coverage, self._builder.node, self._builder.facts.world
        coverage.hit(f"{kind}.arrived")
        if node.on_disk is ReplicaOnDisk.WHOLE:
            coverage.hit(f"{kind}.hosted_already")
        elif node.on_disk is not ReplicaOnDisk.NOTHING:
            coverage.hit(f"{kind}.under_way")
        if not any(config.member(node.node_id) for config in world.possible_configs()):
            coverage.hit(f"{kind}.of_no_member")

    def _host(self, recovered: RecoveredTablet, *, campaign: bool = False) -> None:
        """Start the replica of a tablet that was created (``Node.host``)."""
        try:
            replica = self._builder.build(self._opened(recovered))
        except StelaeError as error:
            self._loader.fail(self._tablet, str(error))
            return
        self._hosted(replica)
