"""Builds the replica of a simulated node from a recovered tablet, with the taps and the virtual pools around it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from stelae.host.assembly import Engines, RecoveredTablet, ReplicaLimits, assemble
from stelae.host.consensus_metadata import HardStateWriter
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.hybrid_clock import HybridClock
from stelae.host.log_writer import LogWriter
from stelae.host.new_replica import NEW_REPLICA
from stelae.host.replica import Replica
from stelae.host.replica_ports import ReplicaObserver, ReplicaPorts
from stelae.host.start_copy import START_COPY
from stelae.server.partition_bounds import batcher_of
from stelae.sim.disk import VirtualDisk
from stelae.sim.fact_feed import FactFeed
from stelae.sim.hosting.late_requests import LateRequests
from stelae.sim.hosting.work_durations import WorkDurations
from stelae.sim.node_links import ObservedNetwork, ObservedTraffic
from stelae.sim.process import Process, VirtualPool, VirtualReader
from stelae.sim.profile import Profile
from stelae.sim.services import CoverageMetrics
from stelae.sim.store_files import ObservedSuperblockFile, StoreFiles
from stelae.sim.tap_core import CoreTap, VoterTap
from stelae.sim.tap_wal import WalTap
from stelae.sim.world import ObservedNode
from stelae.spi.consensus import HardState, Outbound
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import TabletConfig

CACHE_BYTES_MAX = 4_096
"""Limit of the entry cache. It is small, so that replication and apply also read the log."""

BOUND_OF_LAGGING_PEERS = 1 << 40
"""A ``lagging_peer_bytes_max`` above the bytes of any run: the bytes are counted, but the bound has no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaBuilder:
    """Builds replicas during one run of a node's process.

    Attributes:
        bounded: whether the bytes that lagging peers retain are counted.
        cores: the tapped cores that were restored; the last one is that of the newest replica.
        rng: returns the random stream with a name, of this run of the process.
    """

    profile: Profile
    facts: FactFeed
    node: ObservedNode
    node_id: NodeId
    disk: VirtualDisk
    layout: DirectoryLayout
    engines: Engines
    cores: list[CoreTap | VoterTap]
    files: StoreFiles
    wal: WalTap
    writer: LogWriter
    process: Process
    pool: VirtualPool
    durations: WorkDurations
    traffic: ObservedTraffic
    hard_states: ObservedHardStates
    clock: HybridClock
    metrics: CoverageMetrics
    observer: ReplicaObserver
    bounded: bool
    rng: Callable[[str], random.Random]

    def build(self, recovered: RecoveredTablet) -> Replica:
        """Build the replica and route its messages to it. The caller starts it."""
        tablet = recovered.superblock.tablet_id
        self.node.log_id = recovered.superblock.log_id
        replica = assemble(
            recovered,
            self.engines,
            self._ports(),
            node_id=self.node_id,
            superblock_file=ObservedSuperblockFile(self.disk, self.layout, tablet, self.files.saved),
            limits=ReplicaLimits(
                cache_bytes_max=CACHE_BYTES_MAX,
                range_bytes_max=self.profile.append_bytes_max,
                flush_bytes=self.profile.store.flush_bytes,
                memory_bytes_max=self.profile.store.memory_bytes_max,
                lagging_peer_bytes_max=self._lagging_peer_bytes_max(),
            ),
            rng=self.rng("core"),
        )
        if self.profile.member_change_us is not None and not self.profile.copies and not replica.log_only:
            # Nothing copies a replica in such a run, so a member that is added again must find its entries in the log.
            # A witness may collect entries, because every voter with rows still has them.
            replica.flusher.retention.anchor("members that come back", 1)
        self.traffic.add(replica)
        return replica

    def voter_sends(self, outbound: Outbound) -> None:
        """Report a message of the tombstone, and count its votes."""
        if getattr(outbound.message, "refusal", True) is None:
            self.facts.coverage.hit("copies.voted")
        self.facts.sent(self.node, outbound, self.cores[-1].needs_of(outbound.message))

    def _starts(self, node_id: NodeId) -> int:
        """Return the number of the process of a node; 0 for one that does not exist."""
        return next((node.starts for node in self.facts.world.nodes if node.node_id == node_id), 0)

    def _lagging_peer_bytes_max(self) -> int:
        if self.profile.copies:
            return self.profile.lagging_peer_bytes_max
        return BOUND_OF_LAGGING_PEERS if self.bounded else 0

    def _ports(self) -> ReplicaPorts:
        process, durations = self.process, self.durations
        reads = VirtualPool(process, self.rng("reads"), "read", durations.read_us)
        starts = self._starts
        requests = LateRequests(process, NEW_REPLICA, self.rng("requests"), self.traffic.create_replica, starts)
        start_copy = self.traffic.start_copy
        if self.profile.copies:
            start_copy = LateRequests(process, START_COPY, self.rng("copies"), start_copy, starts).send
        return ReplicaPorts(
            turns=process,
            writer=self.writer,
            reader=VirtualReader(self.wal, reads),
            hard_states=self.hard_states,
            network=ObservedNetwork(self.traffic, self.node, self.facts, self.cores, requests.send, start_copy),
            batcher=batcher_of,
            heartbeats=self.traffic.heartbeats,
            members=self.traffic.members,
            time=self.clock,
            pool=VirtualPool(process, self.rng("apply"), "apply", durations.apply_us),
            metadata_pool=self.pool,
            metrics=self.metrics,
            observer=self.observer,
        )


class ObservedHardStates:
    """The ``HardStates`` of a replica. It reports each hard state once it is durable."""

    def __init__(self, inner: HardStateWriter, node: ObservedNode, facts: FactFeed) -> None:
        self._inner = inner
        self._node = node
        self._facts = facts

    def save(
        self,
        tablet_id: TabletId,
        hard_state: HardState,
        committed_config: TabletConfig,
        done: Callable[[StelaeError | None], None],
    ) -> None:
        """Save as ``inner`` does, and report the hard state on success."""

        def finished(error: StelaeError | None) -> None:
            if error is None:
                self._facts.hard_state_saved(self._node, hard_state, committed_config)
            done(error)

        self._inner.save(tablet_id, hard_state, committed_config, finished)
