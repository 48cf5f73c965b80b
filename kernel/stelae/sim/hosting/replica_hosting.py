"""The replica of one simulated node: recovered at start, created or copied because a leader asks for it, and deleted.

Production's services do the work, on virtual threads and the virtual disk. A request may be lost, doubled or late, and
power may be lost between any two disk operations. A further way to get replicas needs its service
here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from stelae.host.assembly import RecoveredTablet
from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.new_replica import NEW_REPLICA
from stelae.host.node import Node
from stelae.host.replica import Replica
from stelae.host.start_copy import START_COPY
from stelae.host.superblock import DataState, SuperblockFile
from stelae.lifecycle.abandoned_copy import is_first_copy
from stelae.lifecycle.first_schema import FirstSchemaCheck
from stelae.lifecycle.side_work import DoneAtOnce
from stelae.lifecycle.startup_decisions import StartupAction
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.lifecycle.tablet_recovery import recover
from stelae.lifecycle.tombstones import Tombstones
from stelae.lifecycle.witness_over_tombstone import WitnessOverTombstone
from stelae.server.tserver.copy_service import CopyService
from stelae.server.tserver.copy_target import CopyTargetService
from stelae.server.tserver.member_service import MemberService
from stelae.server.tserver.new_replicas import NewReplicas
from stelae.sim.hosting.replica_builder import ReplicaBuilder
from stelae.sim.hosting.replica_on_disk import ReplicaOnDisk
from stelae.sim.hosting.virtual_node import VirtualNode
from stelae.sim.hosting.virtual_threads import VirtualCalls, VirtualThreads
from stelae.sim.node_links import NodeLink
from stelae.spi.errors import StelaeError, StorageError
from stelae.spi.ids import OpId, TabletId


class ReplicaHosting:
    """Recovers, creates, copies and deletes the replica of one node, for one run of its process.

    Args:
        hosted: called with a replica that was created or copied and is about to start.
    """

    def __init__(
        self,
        builder: ReplicaBuilder,
        link: NodeLink,
        tablet: TabletId,
        make_node: Callable[[ReplicaHosting], VirtualNode],
        threads: VirtualThreads,
        hosted: Callable[[Replica], None],
    ) -> None:
        self._builder = builder
        self._link = link
        self._tablet = tablet
        self._hosted = hosted
        self._virtual = make_node(self)
        self._node = cast(Node, self._virtual)
        self._loader = self._virtual.tablets
        self._manager = TabletManager(self._node, self._loader)
        self._calls = partial(VirtualCalls, builder.process, threads)

    def recover(self) -> RecoveredTablet | None:
        """Recover the tablet, if the disk has it. Blocks.

        Without copies, the steps of a start are taken one by one: the inspection of all tablets, which comes first in
        production, would hide whether the later ones check what they must.

        Raises:
            StorageError: it cannot be recovered, or a part of it is lost.
        """
        if self._virtual.config.copy is not None:
            return self._recover_as_at_start()
        it = self._builder
        if not it.disk.exists(it.layout.superblock_of(self._tablet)):
            found = self._loader.inspect(self._tablet, it.wal.logs())
            it.facts.replica_found(it.node, None, exists=False)
            if found.decision.action is not StartupAction.NOTHING:
                raise StorageError(f"the tablet has no superblock: {found.failure}")
            return None
        block = SuperblockFile(it.disk, it.layout, self._tablet).load()
        if is_first_copy(block):
            self._undo_creation()
            it.facts.replica_found(it.node, None, exists=False)
            return None
        it.facts.replica_found(it.node, block, exists=True)
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

    def _recover_as_at_start(self) -> RecoveredTablet | None:
        """Recover as a start of production does: deletions are completed, and copies undone, first."""
        it, tablet = self._builder, self._tablet
        found = self._loader.inspect(tablet, it.wal.logs())
        block = found.superblock
        it.facts.replica_found(it.node, block, exists=block is not None and block.data_state is DataState.READY)
        recovered = [one for one in self._loader.recover_all() if one.superblock.tablet_id == tablet]
        if it.node.rows_damaged and tablet in self._loader.damaged:
            it.facts.coverage.hit("node.rows_damaged_at_start")
            return None
        if (failure := self._loader.failed.get(tablet)) is not None:
            raise StorageError(failure)
        if found.decision.action is StartupAction.REMOVE:
            it.facts.coverage.hit("copies.undone")
        if found.decision.action is StartupAction.DELETE_SELF:
            it.facts.coverage.hit("copies.undone_to_tombstone")
        return self._opened(recovered[0]) if recovered else None

    def _opened(self, recovered: RecoveredTablet) -> RecoveredTablet:
        """Report the flushed op id of a replica without rows. The store of other replicas reports its own."""
        block = recovered.superblock
        if block.log_only:
            self._builder.facts.store_opened(self._builder.node, block.flushed)
        return recovered

    def listen(self) -> None:
        """Create or copy a replica when a leader asks for it, and serve copies, in runs with copies."""
        node = self._node
        self._count(NEW_REPLICA)
        tombstones = Tombstones(node)
        FirstSchemaCheck(node).start()
        NewReplicas(node, self._manager, WitnessOverTombstone(node, self._loader, self._manager, tombstones)).start()
        if self._virtual.config.copy is None:
            return
        self._count(START_COPY)
        tombstones.start()
        CopyTargetService(node, self._manager, tombstones, self._calls, DoneAtOnce).start()
        CopyService(node, self._calls).start()
        MemberService(node).start()  # The target of a copy asks its source what is committed.

    def delete(self, seen: OpId, done: Callable[[StelaeError | None], None]) -> None:
        """Delete the replica, as a master asks that has seen the committed config ``seen``."""
        self._manager.delete(self._tablet, "it is no member any more", done, seen=seen)

    def _count(self, kind: str) -> None:
        """Count the messages of a kind, and in which unusual state of the node they arrive."""

        def arrived() -> None:
            coverage, node, world = self._builder.facts.coverage, self._builder.node, self._builder.facts.world
            coverage.hit(f"{kind}.arrived")
            if node.on_disk is ReplicaOnDisk.WHOLE:
                coverage.hit(f"{kind}.hosted_already")
            elif node.on_disk is not ReplicaOnDisk.NOTHING:
                coverage.hit(f"{kind}.under_way")
            if not any(config.member(node.node_id) for config in world.possible_configs()):
                coverage.hit(f"{kind}.of_no_member")

        self._link.count(kind, arrived)

    def host(self, recovered: RecoveredTablet, *, campaign: bool = False) -> None:
        """Start the replica of a tablet that was created or copied (``Node.host``)."""
        try:
            replica = self._builder.build(self._opened(recovered))
        except StelaeError as error:
            self._loader.fail(self._tablet, str(error))
            return
        self._hosted(replica)
