"""Starts one run of a master's node from its disk, with the steps and the code of production.

It composes the same parts as ``stelae.host.node.Node``, in the same order, on a virtual disk, clock, network and
loop."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast

from stelae.host.assembly import Engines, RecoveredTablet, ReplicaLimits, assemble
from stelae.host.consensus_metadata import HardStateWriter
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.hybrid_clock import HybridClock, first_ceiling
from stelae.host.instance import InstanceFile, load_ceiling, lock_directory, save_ceiling
from stelae.host.log_writer import Completion, LogWriter
from stelae.host.member_links import MemberLinks
from stelae.host.node import Node
from stelae.host.peer_codec import PeerCodec
from stelae.host.peer_traffic import PeerTraffic
from stelae.host.replica import Replica
from stelae.host.replica_ports import ReplicaObserver, ReplicaPorts
from stelae.host.settings import NodeConfig
from stelae.lifecycle.first_schema import FirstSchemaCheck
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.lifecycle.tombstones import Tombstones
from stelae.lifecycle.witness_over_tombstone import WitnessOverTombstone
from stelae.server.limits import batchers_of
from stelae.server.master.driver.first_start import SystemTabletLoader
from stelae.server.master.driver.master import Master
from stelae.server.tserver.maintenance import Maintenance
from stelae.server.tserver.new_replicas import NewReplicas
from stelae.sim.clock import VirtualClock
from stelae.sim.disk import VirtualDisk
from stelae.sim.draw import stream
from stelae.sim.masters.committed_log import CommittedLog
from stelae.sim.masters.late_turns import LateTurns
from stelae.sim.masters.master_copies import start_copies
from stelae.sim.masters.master_profile import LAGGING_BYTES_MAX, MasterProfile
from stelae.sim.masters.messenger import SimMessenger
from stelae.sim.masters.observed_core import CoreObserver, ObservedCore
from stelae.sim.masters.peer_link import MasterLink
from stelae.sim.masters.steps import Strike
from stelae.sim.masters.system_replica import FaultyReplica
from stelae.sim.masters.world import MastersWorld
from stelae.sim.process import Process, ProcessCall, VirtualLogDriver, VirtualPool, VirtualReader
from stelae.sim.services import CoverageMetrics, VirtualWorkers
from stelae.spi.consensus_events import Campaign
from stelae.spi.ids import ZERO, NodeId, TabletId
from stelae.spi.services import EngineServices

LAYOUT = DirectoryLayout("/node")
CLOCK_KEEP_AHEAD_US = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterRun:
    """The inputs of one run of a master.

    Attributes:
        number: number of starts of this master so far.
    """

    seed: int
    position: int
    number: int
    node_id: NodeId
    config: NodeConfig
    profile: MasterProfile
    world: MastersWorld
    committed_log: CommittedLog
    disk: VirtualDisk
    clock: VirtualClock
    process: Process
    messenger: SimMessenger
    strike: Strike
    core_observer: CoreObserver
    replica_observer: ReplicaObserver

    def rng(self, name: str) -> random.Random:
        """Return a random stream of this run."""
        return stream(self.seed, f"master/{self.position}/{self.number}/{name}")


class MasterNodeRun:
    """A running node. ``Master``, ``TabletManager`` and ``Maintenance`` use it as their node."""

    def __init__(self, run: MasterRun, link: MasterLink) -> None:
        self._run = run
        self._link = link
        self.node_id = run.node_id
        self.config = run.config
        self.address = run.config.node.listen
        self.messenger = run.messenger
        self.turns = run.process
        self.late_turns = LateTurns(run.process, run.rng("late"))
        self.metrics = CoverageMetrics(run.world.coverage)
        self.files, self.layout = run.disk, LAYOUT
        profile = run.profile
        self.metadata_pool = VirtualPool(run.process, run.rng("metadata"), "metadata", lambda: profile.metadata_us)
        self.scans = VirtualPool(run.process, run.rng("scans"), "scan", lambda: profile.scan_us, profile.scanned_us)
        self.hard_states = HardStateWriter(run.disk, LAYOUT, self.metadata_pool)
        self._faulty: dict[TabletId, FaultyReplica] = {}
        self._runs = False  # Whether the start is over.

    # -- start -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Recover everything and start.

        Raises:
            StorageError: the disk has failed or is full.
            PowerLost: power was lost during the start.
        """
        run, config = self._run, self.config
        lock_directory(run.disk, LAYOUT, pid=run.number)
        InstanceFile(run.disk, LAYOUT).start(cluster=config.cluster_id, wal_engine=config.wal.name)
        self.time = self._hybrid_clock()
        self._keep_clock_ahead()
        self.engines = self._open_engines()
        names = (config.consensus.name, config.store.name)
        self.tablets = SystemTabletLoader(run.disk, LAYOUT, self.engines, names)
        assert config.tablet is not None
        self.tablets.create(config.tablet)
        recovered = self.tablets.recover_all()
        self._start_traffic()
        self.master = self._start_master()
        self._start_log()
        for one in recovered:
            self.host(one)
        Maintenance(cast(Node, self)).start()
        self._runs = True

    def _hybrid_clock(self) -> HybridClock:
        disk, clock, settings = self._run.disk, self._run.clock, self.config.clock
        pool = VirtualPool(self._run.process, self._run.rng("clock"), "clock", lambda: self._run.profile.metadata_us)
        stored = load_ceiling(disk, LAYOUT)
        ceiling = first_ceiling(stored, clock, settings)
        save_ceiling(disk, LAYOUT, ceiling)

        def save(wanted: int, done: Callable[[object], None]) -> None:
            pool.run("clock", lambda: save_ceiling(disk, LAYOUT, wanted), done)

        return HybridClock(clock, settings=settings, stored=stored, ceiling=ceiling, save=save)

    def _keep_clock_ahead(self) -> None:
        self.time.keep_ahead()
        self.turns.call_at(self.turns.now_us() + CLOCK_KEEP_AHEAD_US, self._keep_clock_ahead)

    def _open_engines(self) -> Engines:
        run, config = self._run, self.config
        workers = VirtualPool(run.process, run.rng("workers"), "worker", lambda: run.profile.sync_us)
        services = EngineServices(run.disk, run.clock, self.metrics, VirtualWorkers(workers))
        return Engines(
            wal=config.wal.engine.open(LAYOUT.wals, config.wal.config, services),
            consensus=run.committed_log.observed_engine(config.consensus.engine, run.position),
            consensus_config=config.consensus.config,
            store=config.store.engine,
            store_config=config.store.config,
            services=services,
        )

    def _start_traffic(self) -> None:
        consensus = self.config.consensus
        beat_us = consensus.engine.beat_interval_ms(consensus.config) * 1000
        members = MemberLinks(self.node_id, self.messenger)
        self.peers = PeerTraffic(PeerCodec(consensus.engine.message_types), self.turns, self.metrics, beat_us, members)
        self._link.begin(self.peers, self.time, self.messenger.one_way)

    def _start_master(self) -> Master:
        run = self._run
        master = Master(
            _MasterView(self),
            loader=self.tablets,
            create_tablet=TabletManager(cast(Node, self), self.tablets).create,
            rng=run.rng("driver"),
            make_core=partial(ObservedCore, run.core_observer),
        )
        master.start()
        node = cast(Node, self)
        manager, tombstones = TabletManager(node, self.tablets), Tombstones(node)
        FirstSchemaCheck(node).start()
        NewReplicas(node, manager, WitnessOverTombstone(node, self.tablets, manager, tombstones)).start()
        if run.profile.copies:
            start_copies(node, manager, tombstones, self._link, run.process, run.rng, run.profile.metadata_us)
        return master

    def _start_log(self) -> None:
        run, profile = self._run, self._run.profile
        driver = VirtualLogDriver(
            run.process, self.engines.wal, run.rng("wal"), lambda: profile.sync_us, fast=False, writer=_new_log_writer
        )
        self.writer = driver.writer
        reads = VirtualPool(run.process, run.rng("reads"), "read", lambda: profile.apply_us)
        self._ports = ReplicaPorts(
            turns=self.turns,
            writer=self.writer,
            reader=VirtualReader(self.engines.wal, reads),
            hard_states=self.hard_states,
            network=self.peers,
            batcher=batchers_of(self.config),
            heartbeats=self.peers.heartbeats,
            members=self.peers.members,
            time=self.time,
            pool=VirtualPool(run.process, run.rng("apply"), "apply", lambda: profile.apply_us),
            metadata_pool=self.metadata_pool,
            metrics=self.metrics,
            observer=run.replica_observer,
        )
        self.peers.start(self._link)

    def host(self, recovered: RecoveredTablet, *, campaign: bool = False) -> None:
        """Start the replica of a recovered tablet (``Node.host``)."""
        run, tablet_id = self._run, recovered.superblock.tablet_id
        if self._runs and recovered.superblock.flushed > ZERO:
            run.world.coverage.hit("masters.copied_over" if tablet_id in self._faulty else "masters.copied")
        self.time.observe(recovered.timestamp)
        replica = assemble(
            recovered,
            self.engines,
            self._ports,
            node_id=self.node_id,
            superblock_file=self.tablets.superblock_file(tablet_id),
            limits=ReplicaLimits(
                flush_bytes=run.profile.flush_bytes,
                lagging_peer_bytes_max=LAGGING_BYTES_MAX if run.profile.copies else 0,
            ),
            rng=run.rng("core"),
        )
        self.peers.add(replica)
        self._faulty[tablet_id] = FaultyReplica(
            replica, run.process, run.rng("faults"), run.world, run.committed_log, run.strike
        )
        replica.start()
        if campaign:
            replica.deliver(Campaign(hinted=True))

    # -- what services use -----------------------------------------------------------------------

    @property
    def replicas(self) -> Mapping[TabletId, Replica]:
        """The replicas of this node."""
        return self.peers.replicas

    @property
    def faulty_replicas(self) -> Mapping[TabletId, FaultyReplica]:
        """The same replicas with injected faults, as the master's driver uses them."""
        return {tablet: one for tablet, one in self._faulty.items() if self.replicas.get(tablet) is one.inner}

    @property
    def failed_tablets(self) -> Mapping[TabletId, str]:
        """The tablets that failed to start, with the reasons."""
        return self.tablets.failed


class _MasterView:
    """The node as its master sees it (``MasterNode``)."""

    def __init__(self, node: MasterNodeRun) -> None:
        self._node = node
        self.node_id = node.node_id
        self.address = node.address
        self.config = node.config
        self.messenger = node.messenger
        self.metrics = node.metrics
        self.turns = node.late_turns
        self.time = node.time
        self.scans = node.scans

    @property
    def replicas(self) -> Mapping[TabletId, FaultyReplica]:
        return self._node.faulty_replicas

    @property
    def failed_tablets(self) -> Mapping[TabletId, str]:
        return self._node.failed_tablets


def _new_log_writer(wake: ProcessCall, post: Callable[[list[Completion]], None]) -> LogWriter:
    return LogWriter(
        lock=contextlib.nullcontext(), wake=wake, post=post, queue_bytes_max=1 << 20, group_bytes_max=1 << 20
    )
