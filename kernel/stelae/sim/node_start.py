"""Starts a simulated node from a formatted disk, with the steps and the code of production.

Only threads and sockets are replaced by virtual ones. A start happens at one instant of virtual time,
but power may be lost at any disk operation in it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stelae.host.assembly import Engines, ReplicaLimits, assemble
from stelae.host.consensus_metadata import ConsensusMetadata, HardStateWriter
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.hybrid_clock import ClockSettings, HybridClock, first_ceiling
from stelae.host.instance import Instance, InstanceFile, format_directory, load_ceiling, lock_directory, save_ceiling
from stelae.host.log_writer import Completion, LogWriter
from stelae.host.member_links import MemberLinks
from stelae.host.peer_codec import PeerCodec
from stelae.host.peer_traffic import PeerTraffic
from stelae.host.replica import Replica
from stelae.host.replica_ports import ReplicaObserver, ReplicaPorts
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.lifecycle.tablet_recovery import recover
from stelae.server.partition_bounds import batcher_of
from stelae.sim.clock import VirtualClock
from stelae.sim.coverage import Coverage
from stelae.sim.disk import VirtualDisk
from stelae.sim.draw import chance, stream
from stelae.sim.engines import SimEngines
from stelae.sim.fact_feed import FactFeed
from stelae.sim.history import SCHEMA
from stelae.sim.log_model import LogModel
from stelae.sim.maintenance import maintenance_of
from stelae.sim.network import Network
from stelae.sim.node_links import FramesInFlight, NodeLink, ObservedNetwork
from stelae.sim.process import Call, DurationRange, Process, VirtualLogDriver, VirtualPool, VirtualReader
from stelae.sim.profile import Profile
from stelae.sim.scratch_log import SCRATCH_LOG, ScratchLogWriter
from stelae.sim.services import CoverageMetrics, VirtualWorkers
from stelae.sim.snapshot_reader import SnapshotReader
from stelae.sim.store_files import ObservedSuperblockFile, StoreFiles
from stelae.sim.tap_core import CoreTap, tapped_engine
from stelae.sim.tap_store import tapped_store
from stelae.sim.tap_wal import WalTap
from stelae.sim.world import ObservedNode
from stelae.spi.consensus import HardState
from stelae.spi.errors import StelaeError
from stelae.spi.ids import ZERO, ClusterId, IncarnationId, LogId, NodeId, TabletId
from stelae.spi.members import Member, TabletConfig
from stelae.spi.services import EngineServices

CLUSTER = ClusterId("simulated")
TABLET = TabletId("tablet")
LAYOUT = DirectoryLayout("/node")
STORE = f"{LAYOUT.data}/{TABLET}"
CACHE_BYTES_MAX = 4_096
"""Limit of the entry cache. It is small, so that replication and apply also read the log."""
FAR_BOUND = 1 << 40
"""A ``lagging_peer_bytes_max`` above the bytes of any run: the bytes are counted, but the bound has no effect."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDurations:
    """The current durations of disk and apply work."""

    sync_us: Callable[[], DurationRange]
    metadata_us: Callable[[], DurationRange]
    apply_us: Callable[[], DurationRange]
    read_us: Callable[[], DurationRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningNode:
    """One running node."""

    process: Process
    link: NodeLink
    clock: HybridClock
    replica: Replica
    scratch_log: ScratchLogWriter
    snapshot_reader: SnapshotReader


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
    """Format a disk for a node with one empty tablet, as the format command does."""
    position = context.node_ids.index(node_id)
    instance = Instance(node_id=node_id, cluster_id=CLUSTER, wal_engine=context.profile.logs[position])
    format_directory(disk, LAYOUT, instance)
    config = initial_config(context.node_ids)
    if config.member(node_id) is None:
        config = TabletConfig(op_id=ZERO, members=())  # It gets its config with the log, when it is added.
    ConsensusMetadata(disk, LAYOUT, TABLET).save(HardState(), config)
    store = context.profile.store.engines[position]
    block = Superblock(tablet_id=TABLET, schemas=(SCHEMA.to_bytes(),), store_engine=store)
    SuperblockFile(disk, LAYOUT, TABLET).save(block)


class _KnownNodes:
    """The links of a simulated node: its network knows every node."""

    def add_peer(self, node_id: NodeId, address: str) -> None:
        """Do nothing."""

    def remove_peer(self, node_id: NodeId) -> None:
        """Do nothing."""


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
        traffic = PeerTraffic(codec, process, self._metrics, self._heartbeat_interval_us)
        link = self._link(hybrid)
        replica = self._replica(wal, driver.writer, traffic, hybrid, observer)
        if self._context.profile.member_change_us is not None:
            # Nothing copies a replica in a run, so a member that is added again must find its entries in the log.
            replica.flusher.retention.anchor("members that come back", 1)
        traffic.add(replica)
        link.traffic = traffic
        traffic.start(link)
        replica.start()
        maintenance_of(process, hybrid, replica, self._context.profile).start()
        return RunningNode(
            process=process,
            link=link,
            clock=hybrid,
            replica=replica,
            scratch_log=self._start_scratch_log(wal, driver.writer),
            snapshot_reader=self._start_snapshot_reader(replica),
        )

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
        for log in (LogId(TABLET, 1), SCRATCH_LOG):
            if log not in tap.logs():
                tap.create(log, ZERO)
        return tap

    def _writer(self, wake: Call, post: Callable[[list[Completion]], None]) -> LogWriter:
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

    def _replica(
        self, wal: WalTap, writer: LogWriter, traffic: PeerTraffic, hybrid: HybridClock, observer: ReplicaObserver
    ) -> Replica:
        record = ConsensusMetadata(self._disk, LAYOUT, TABLET).load()
        files = StoreFiles(self._disk, STORE, self._node, self._context.facts)
        superblock_file = ObservedSuperblockFile(self._disk, LAYOUT, TABLET, files.saved)
        block = superblock_file.load()
        engines, cores = self._engines(wal, block.store_engine, files)
        recovered = recover(block, record, engines, STORE)
        network = ObservedNetwork(traffic, self._node, self._context.facts, cores)
        return assemble(
            recovered,
            engines,
            self._ports(wal, writer, network, traffic, hybrid, observer),
            node_id=self._node_id,
            superblock_file=superblock_file,
            limits=ReplicaLimits(
                cache_bytes_max=CACHE_BYTES_MAX,
                range_bytes_max=self._context.profile.append_bytes_max,
                flush_bytes=self._context.profile.store.flush_bytes,
                memory_bytes_max=self._context.profile.store.memory_bytes_max,
                lagging_peer_bytes_max=FAR_BOUND if chance(self._rng("bound"), 0.5) else 0,
            ),
            rng=self._rng("core"),
        )

    def _engines(self, wal: WalTap, store: str, files: StoreFiles) -> tuple[Engines, list[CoreTap]]:
        """Return the engines with their taps, and the list that will hold the core."""
        context, chosen = self._context, self._context.engines
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

    def _ports(
        self,
        wal: WalTap,
        writer: LogWriter,
        network: ObservedNetwork,
        traffic: PeerTraffic,
        hybrid: HybridClock,
        observer: ReplicaObserver,
    ) -> ReplicaPorts:
        process, durations = self._process, self._durations
        hard_states = HardStateWriter(self._disk, LAYOUT, self._pool)
        reads = VirtualPool(process, self._rng("reads"), "read", durations.read_us)
        return ReplicaPorts(
            turns=process,
            writer=writer,
            reader=VirtualReader(wal, reads),
            hard_states=ObservedHardStates(hard_states, self._node, self._context.facts),
            network=network,
            batcher=batcher_of,
            heartbeats=traffic.heartbeats,
            members=MemberLinks(self._node_id, _KnownNodes()),
            time=hybrid,
            pool=VirtualPool(process, self._rng("apply"), "apply", durations.apply_us),
            metadata_pool=self._pool,
            metrics=self._metrics,
            observer=observer,
        )

    def _start_scratch_log(self, wal: WalTap, writer: LogWriter) -> ScratchLogWriter:
        state = wal.logs()[SCRATCH_LOG]
        writer.open_log(SCRATCH_LOG, state.last)
        floor = self._models[SCRATCH_LOG].collectable
        rng = self._rng("scribe")
        scratch_log = ScratchLogWriter(self._process, writer, rng, self._context.coverage, state.last, floor)
        scratch_log.start()
        return scratch_log

    def _start_snapshot_reader(self, replica: Replica) -> SnapshotReader:
        context = self._context
        snapshot_reader = SnapshotReader(
            self._process, replica, self._node, context.facts, self._rng("historian"), context.coverage
        )
        snapshot_reader.start()
        return snapshot_reader


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


__all__ = ["LAYOUT", "TABLET", "NodeContext", "NodeStart", "RunningNode", "WorkDurations", "format_node"]
