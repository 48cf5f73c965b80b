"""Starts a simulated node from a formatted disk, with the steps and the code of production.

Only threads and sockets are replaced by virtual ones. A start happens at one instant of virtual time,
but power may be lost at any disk operation in it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from stelae.host.assembly import Engines
from stelae.host.consensus_metadata import ConsensusMetadata, HardStateWriter
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.hybrid_clock import ClockSettings, HybridClock, first_ceiling
from stelae.host.instance import Instance, InstanceFile, format_directory, load_ceiling, lock_directory, save_ceiling
from stelae.host.log_writer import Completion, LogWriter
from stelae.host.member_links import MemberLinks
from stelae.host.node import Node
from stelae.host.peer_codec import PeerCodec
from stelae.host.peer_traffic import PeerTraffic
from stelae.host.replica import Replica
from stelae.host.replica_ports import ReplicaObserver
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.lifecycle.copy_settings import StageSettings
from stelae.lifecycle.first_schema import first_schema_sum
from stelae.server.tserver.diff_pages import reader_of
from stelae.server.tserver.lookups import Lookups
from stelae.server.tserver.open_scans import OpenScans
from stelae.sim.clock import VirtualClock
from stelae.sim.coverage import Coverage
from stelae.sim.disk import VirtualDisk
from stelae.sim.draw import chance, stream
from stelae.sim.engines import SimEngines
from stelae.sim.fact_feed import FactFeed
from stelae.sim.history import SCHEMA
from stelae.sim.hosting.creation_crashes import CreationCrashes
from stelae.sim.hosting.node_messenger import NodeMessenger
from stelae.sim.hosting.observed_loader import ObservedLoader
from stelae.sim.hosting.replica_builder import ObservedHardStates, ReplicaBuilder
from stelae.sim.hosting.replica_hosting import ReplicaHosting
from stelae.sim.hosting.replica_on_disk import ReplicaOnDisk
from stelae.sim.hosting.virtual_node import VirtualNode, VirtualNodeConfig, VirtualNodeEngine
from stelae.sim.hosting.virtual_threads import ThreadedPool, VirtualThreads
from stelae.sim.hosting.work_durations import WorkDurations
from stelae.sim.log_model import LogModel
from stelae.sim.maintenance import maintenance_of
from stelae.sim.network import Network
from stelae.sim.node_change import NodeChange
from stelae.sim.node_links import FramesInFlight, KnownNodes, NodeLink, ObservedTraffic
from stelae.sim.process import Process, ProcessCall, VirtualLogDriver, VirtualPool
from stelae.sim.profile import Profile
from stelae.sim.read_node import SimReadNode
from stelae.sim.scratch_log import SCRATCH_LOG, ScratchLogWriter
from stelae.sim.services import CoverageMetrics, VirtualWorkers
from stelae.sim.snapshot_reader import SnapshotReader
from stelae.sim.store_files import StoreFiles
from stelae.sim.tap_copy import CopyTap
from stelae.sim.tap_core import CoreTap, VoterTap, tapped_engine
from stelae.sim.tap_store import tapped_store
from stelae.sim.tap_wal import WalTap
from stelae.sim.world import ObservedNode
from stelae.spi.consensus import HardState
from stelae.spi.ids import ZERO, ClusterId, IncarnationId, LogId, NodeId, TabletId
from stelae.spi.members import Member, TabletConfig
from stelae.spi.services import EngineServices

CLUSTER = ClusterId("simulated")
TABLET = TabletId("tablet")
LAYOUT = DirectoryLayout("/node")
STORE = f"{LAYOUT.data}/{TABLET}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """What all nodes of a run share."""

    seed: int
    profile: Profile
    engines: SimEngines
    network: Network
    coverage: Coverage
    facts: FactFeed
    node_ids: Sequence[NodeId]
    arrive: Callable[[int, FramesInFlight], None]


@dataclass(slots=True, kw_only=True)
class RunningNode:
    """One running node. It has no replica and no reader until it hosts the tablet."""

    process: Process
    traffic: PeerTraffic
    link: NodeLink
    clock: HybridClock
    scratch_log: ScratchLogWriter
    hosting: ReplicaHosting
    store_files: StoreFiles
    read_node: SimReadNode
    lookups: Lookups = field(init=False)
    open_scans: OpenScans = field(init=False)
    snapshot_reader: SnapshotReader | None = None

    def __post_init__(self) -> None:
        self.lookups = Lookups(self.read_node)
        self.open_scans = OpenScans(cast(Node, self.read_node), reader_of)  # It uses the pool and the turns alone.

    @property
    def replica(self) -> Replica | None:
        """The replica, if the node hosts it."""
        return self.traffic.replicas.get(TABLET)


INITIAL_MEMBERS = 3


def draw_node_ids(seed: int, nodes: int) -> list[NodeId]:
    """Draw the node ids of a run, ascending."""
    rng = stream(seed, "node-ids")
    return sorted(NodeId(f"{rng.getrandbits(128):032x}") for _ in range(nodes))


def initial_config(node_ids: Sequence[NodeId]) -> TabletConfig:
    """Return the config before the first entry: the first three nodes."""
    members = tuple(Member(node_id=n, address=f"{n[:8]}:1") for n in node_ids[:INITIAL_MEMBERS])
    return TabletConfig(op_id=ZERO, members=members)


def format_node(context: NodeContext, node_id: NodeId, disk: VirtualDisk) -> None:
    """Format a disk, as the format command does. An initial member also gets its empty replica of the tablet."""
    position = context.node_ids.index(node_id)
    instance = Instance(node_id=node_id, cluster_id=CLUSTER, wal_engine=context.profile.logs[position])
    format_directory(disk, LAYOUT, instance)
    config = initial_config(context.node_ids)
    if config.member(node_id) is None:
        return
    ConsensusMetadata(disk, LAYOUT, TABLET).save(HardState(), config)
    store = context.profile.store.engines[position]
    consensus = context.engines.consensus.name
    block = Superblock(tablet_id=TABLET, consensus_engine=consensus, store_engine=store, schemas=(SCHEMA.to_bytes(),))
    SuperblockFile(disk, LAYOUT, TABLET).save(block)


FAST_SHARE = 0.3
"""Share of the starts with ``[log] fast = true``. It is drawn for each start of a node."""


class NodeStart:
    """One start of one node.

    Args:
        number: number of starts of the node so far. The random streams of the start depend on it.
        models: models of the node's logs.
    """

    def __init__(
        self,
        context: NodeContext,
        node: ObservedNode,
        number: int,
        disk: VirtualDisk,
        clock: VirtualClock,
        process: Process,
        models: dict[LogId, LogModel],
        durations: WorkDurations,
    ) -> None:
        self._context = context
        self._node = node
        self._number = number
        self._disk = disk
        self._clock = clock
        self._process = process
        self._models = models
        self._durations = durations
        self._metrics = CoverageMetrics(context.coverage)
        self._node_id = context.node_ids[node.position]
        self._pool = VirtualPool(process, self._rng("pool"), "pool", durations.metadata_us)

    def run(self, observer: ReplicaObserver) -> RunningNode:
        """Recover everything and start.

        Raises:
            StorageError: the disk has failed or is full, or its contents are not usable.
            PowerLost: power was lost during the start.
        """
        lock_directory(self._disk, LAYOUT, pid=self._number)
        wal_engine = self._context.profile.logs[self._node.position]
        InstanceFile(self._disk, LAYOUT).start(cluster=CLUSTER, wal_engine=wal_engine)
        hybrid = self._hybrid_clock()
        fast = chance(self._rng("fast"), FAST_SHARE)
        wal = self._open_wal(fast)
        process, durations = self._process, self._durations
        driver = VirtualLogDriver(process, wal, self._rng("wal"), durations.sync_us, fast=fast, writer=self._writer)
        codec = PeerCodec(self._context.engines.consensus.message_types)
        members = MemberLinks(self._node.node_id, KnownNodes())
        traffic = ObservedTraffic(codec, process, self._metrics, self._heartbeat_interval_us, members)
        link = self._link(hybrid)
        builder = self._builder(wal, driver.writer, traffic, hybrid, observer)
        traffic.voter_sends = builder.voter_sends
        hosting = self._hosting(builder, link, lambda replica: self._begin(running, replica))
        recovered = hosting.recover()
        replica = builder.build(recovered) if recovered is not None else None
        link.traffic = traffic
        hosting.listen()
        traffic.start(link)
        if replica is not None:
            self._begin_replica(hybrid, replica)
        scratch_log = self._start_scratch_log(wal, driver.writer)
        running = RunningNode(
            process=process,
            traffic=traffic,
            link=link,
            clock=hybrid,
            scratch_log=scratch_log,
            hosting=hosting,
            store_files=builder.files,
            read_node=self._read_node(hybrid),
        )
        if replica is not None:
            running.snapshot_reader = self._start_snapshot_reader(replica)
        return running

    def _begin(self, running: RunningNode, replica: Replica) -> None:
        """Start a replica that was created or copied while the node runs."""
        coverage, facts = self._context.coverage, self._context.facts
        if replica.log_only:
            over_tombstone = replica.log != LogId(TABLET, 1)
            coverage.hit("witness.created_over_tombstone" if over_tombstone else "witness.created")
            facts.node_changed(self._node, NodeChange.WITNESS_CREATED)
        elif replica.flusher.superblock.flushed != ZERO:
            coverage.hit("copies.hosted")
            facts.node_changed(self._node, NodeChange.REPLICA_COPIED)
        else:
            coverage.hit("new_replica.created")
            facts.node_changed(self._node, NodeChange.REPLICA_CREATED)
        self._begin_replica(running.clock, replica)
        running.snapshot_reader = self._start_snapshot_reader(replica)

    def _begin_replica(self, hybrid: HybridClock, replica: Replica) -> None:
        replica.start()
        maintenance_of(self._process, hybrid, replica, self._context.profile).start()

    @property
    def _heartbeat_interval_us(self) -> int:
        return self._context.profile.election_timeout_ms * 1_000 // 5

    def _rng(self, name: str) -> random.Random:
        return stream(self._context.seed, f"node/{self._node.position}/{self._number}/{name}")

    def _hybrid_clock(self) -> HybridClock:
        settings = ClockSettings()
        stored = load_ceiling(self._disk, LAYOUT)
        ceiling = first_ceiling(stored, self._clock, settings)
        save_ceiling(self._disk, LAYOUT, ceiling)

        def save(wanted: int, done: Callable[[object], None]) -> None:
            self._pool.run("clock", lambda: save_ceiling(self._disk, LAYOUT, wanted), done)

        return HybridClock(self._clock, settings=settings, stored=stored, ceiling=ceiling, save=save)

    def _read_node(self, hybrid: HybridClock) -> SimReadNode:
        pool = VirtualPool(self._process, self._rng("lookups"), "lookup", self._durations.apply_us)
        return SimReadNode(time=hybrid, turns=self._process, scans=pool)

    def _services(self) -> EngineServices:
        workers = VirtualPool(self._process, self._rng("workers"), "worker", self._durations.sync_us)
        return EngineServices(self._disk, self._clock, self._metrics, VirtualWorkers(workers))

    def _open_wal(self, fast: bool) -> WalTap:
        context = self._context
        name = context.profile.logs[self._node.position]
        context.facts.coverage.hit(f"log.{name}")
        config = context.engines.wal_config(name, context.profile)
        engine = context.engines.wals[name]
        if fast and (chosen := engine.fast()) is not None:
            context.facts.coverage.hit(f"log.fast.{name}")
            engine = chosen
        inner = engine.open(LAYOUT.wals, config, self._services())
        tap = WalTap(inner, self._node, context.facts, self._models, TABLET)
        # The format command creates no log, so the first start of an initial member does. A copied replica has another.
        first = LogId(TABLET, 1)
        is_initial = self._node.on_disk is ReplicaOnDisk.WHOLE and self._node.log_id in (None, first)
        for log in (first, SCRATCH_LOG) if is_initial else (SCRATCH_LOG,):
            if log not in tap.logs():
                tap.create(log, ZERO)
        return tap

    def _writer(self, wake: ProcessCall, post: Callable[[list[Completion]], None]) -> LogWriter:
        return LogWriter(
            lock=contextlib.nullcontext(),
            wake=wake,
            post=post,
            queue_bytes_max=self._context.profile.queue_bytes_max,
            group_bytes_max=1 << 20,
        )

    def _link(self, hybrid: HybridClock) -> NodeLink:
        return NodeLink(
            position=self._node.position,
            node_ids=self._context.node_ids,
            incarnation_id=IncarnationId(f"{self._number:016x}"),
            process=self._process,
            network=self._context.network,
            clock=hybrid,
            coverage=self._context.coverage,
            arrive=self._context.arrive,
        )

    def _builder(
        self, wal: WalTap, writer: LogWriter, traffic: ObservedTraffic, hybrid: HybridClock, observer: ReplicaObserver
    ) -> ReplicaBuilder:
        context = self._context
        files = StoreFiles(self._disk, STORE, self._node, context.facts)
        engines, cores = self._engines(wal, files)
        traffic.first_schema_sum = lambda replica: first_schema_sum(replica.flusher.superblock)
        return ReplicaBuilder(
            profile=context.profile,
            facts=context.facts,
            node=self._node,
            node_id=self._node_id,
            disk=self._disk,
            layout=LAYOUT,
            engines=engines,
            cores=cores,
            files=files,
            wal=wal,
            writer=writer,
            process=self._process,
            pool=self._pool,
            durations=self._durations,
            traffic=traffic,
            hard_states=ObservedHardStates(HardStateWriter(self._disk, LAYOUT, self._pool), self._node, context.facts),
            clock=hybrid,
            metrics=self._metrics,
            observer=observer,
            bounded=chance(self._rng("bound"), 0.5),
            rng=self._rng,
        )

    def _engines(self, wal: WalTap, files: StoreFiles) -> tuple[Engines, list[CoreTap | VoterTap]]:
        """Return the engines with their taps, and the list that will hold the cores."""
        context, chosen = self._context, self._context.engines
        store = context.profile.store.engines[self._node.position]
        consensus, cores = tapped_engine(chosen.consensus, self._node, context.facts)
        inline = context.profile.apply_inline
        engines = Engines(
            wal=wal,
            consensus=consensus,
            consensus_config=chosen.consensus_config(context.profile),
            store=tapped_store(chosen.stores[store], self._node, context.facts, files, inline=inline),
            store_config=chosen.store_config(store, context.profile),
            services=self._services(),
        )
        return engines, cores

    def _hosting(self, builder: ReplicaBuilder, link: NodeLink, hosted: Callable[[Replica], None]) -> ReplicaHosting:
        context, position = self._context, self._node.position
        consensus, store = context.engines.consensus.name, context.profile.store.engines[position]
        crashes = CreationCrashes(
            self._disk.faults,
            self._rng("creations"),
            lambda: context.facts.world.now_us() < context.profile.safety_us,
            context.coverage,
        )
        loader = ObservedLoader(
            self._disk, LAYOUT, builder.engines, (consensus, store), self._node, context.facts, crashes
        )
        threads = VirtualThreads(self._process)

        def virtual_node(hosting: ReplicaHosting) -> VirtualNode:
            return self._virtual_node(builder, loader, link, threads, hosting)

        return ReplicaHosting(builder, link, TABLET, virtual_node, threads, hosted)

    def _virtual_node(
        self,
        builder: ReplicaBuilder,
        loader: ObservedLoader,
        link: NodeLink,
        threads: VirtualThreads,
        hosting: ReplicaHosting,
    ) -> VirtualNode:
        def pool(name: str) -> ThreadedPool:
            return ThreadedPool(self._process, threads, self._rng(name), name, self._durations.metadata_us)

        return VirtualNode(
            node_id=self._node_id,
            config=self._virtual_config(),
            files=self._disk,
            layout=LAYOUT,
            engines=builder.engines,
            tablets=loader,
            metadata_pool=self._pool,
            scans=self._pool,
            copies=pool("copy"),
            copy_snapshots=pool("copy-take"),
            copy_reads=pool("copy-read"),
            writer=builder.writer,
            turns=self._process,
            time=builder.clock,
            peers=builder.traffic,
            hard_states=builder.hard_states,
            messenger=NodeMessenger(link, self._process, link.incarnation_id),
            metrics=self._metrics,
            host=hosting.host,
        )

    def _virtual_config(self) -> VirtualNodeConfig:
        engines, profile, position = self._context.engines, self._context.profile, self._node.position
        store = profile.store.engines[position]
        tap = CopyTap(engines.copy, self._node, self._context.facts)
        copy = VirtualNodeEngine(engines.copy.name, tap, engines.copy_config()) if profile.copies else None
        return VirtualNodeConfig(
            consensus=VirtualNodeEngine(engines.consensus.name, engines.consensus),
            wal=VirtualNodeEngine(profile.logs[position]),
            store=VirtualNodeEngine(store, engines.stores[store]),
            copy=copy,
            extra={"stage": StageSettings(rounds_max=2, pause_ms=50)},
        )

    def _start_scratch_log(self, wal: WalTap, writer: LogWriter) -> ScratchLogWriter:
        state = wal.logs()[SCRATCH_LOG]
        writer.open_log(SCRATCH_LOG, state.last)
        floor = self._models[SCRATCH_LOG].collectable
        rng = self._rng("scribe")  # The names of streams stay: they decide what the known seeds draw.
        scratch_log = ScratchLogWriter(self._process, writer, rng, self._context.coverage, state.last, floor)
        scratch_log.start()
        return scratch_log

    def _start_snapshot_reader(self, replica: Replica) -> SnapshotReader | None:
        if replica.log_only:
            return None
        context = self._context
        snapshot_reader = SnapshotReader(
            self._process, replica, self._node, context.facts, self._rng("historian"), context.coverage
        )
        snapshot_reader.start()
        return snapshot_reader


__all__ = ["LAYOUT", "STORE", "TABLET", "NodeContext", "NodeStart", "RunningNode", "format_node"]
