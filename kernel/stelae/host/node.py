"""A node: it starts and stops files, clock, engines, replicas and messenger, in order.

The node depends on no service, no plugin, no ``node.toml`` and no operating system. It gets settings, engine classes,
service factories and a machine. So it can start with ``spi``, ``wire``, ``host`` and fakes alone."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from stelae.host.assembly import Engines, RecoveredTablet, ReplicaLimits, TabletSourceFactory, assemble
from stelae.host.consensus_metadata import HardStateWriter
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.disk_watch import DiskWatch
from stelae.host.hybrid_clock import LOGICAL_BITS, HybridClock, first_ceiling, physical_us, timestamp
from stelae.host.instance import InstanceFile, load_ceiling, lock_directory, save_ceiling
from stelae.host.machine import Machine
from stelae.host.member_links import MemberLinks
from stelae.host.peer_codec import PeerCodec
from stelae.host.peer_traffic import BEAT, BEAT_ACK, CONSENSUS, REMOVED, PeerTraffic
from stelae.host.ports import BatcherFactory, Timer
from stelae.host.replica import Replica
from stelae.host.replica_ports import ReplicaObserver, ReplicaPorts
from stelae.host.settings import NodeConfig
from stelae.spi.consensus_events import Campaign
from stelae.spi.errors import StelaeError, StorageError
from stelae.spi.hooks import Service, ServiceFactory
from stelae.spi.ids import IncarnationId, NodeId, TabletId
from stelae.spi.services import EngineServices
from stelae.wire.messenger import Identity, Lane, Messenger, PeerChange

log = logging.getLogger(__name__)

CLOCK_KEEP_AHEAD_US = 500_000


class Node:
    """One node. Construct it, ``start`` it, wait for ``stopped``, then ``stop`` it.

    Args:
        config: settings and engine classes.
        services: factories of the services, which are started in this order.
        machine: the machine of this node. No other node uses it.
        batcher: makes the ``WriteBatcher`` of a tablet.
        tablets: makes the ``TabletSource``, which recovers the tablets.
        observer: gets the transitions of replicas, on the event loop."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        services: Sequence[ServiceFactory],
        machine: Machine,
        batcher: BatcherFactory,
        tablets: TabletSourceFactory,
        observer: ReplicaObserver,
    ) -> None:
        self.config = config
        self.metrics = machine.metrics
        self.crashed: BaseException | None = None
        self.address = ""
        self._factories = services
        self._batcher = batcher
        self._tablet_source = tablets
        self._machine = machine
        self.files, self._clock = machine.files, machine.clock
        self.layout = DirectoryLayout(config.node.directory)
        self._watch = DiskWatch(observer, self.files, self.layout, self._crash)
        self._instance = InstanceFile(self.files, self.layout)
        self._undo = contextlib.ExitStack()
        self._services: list[Service] = []
        self._clock_timer: Timer | None = None
        self._ended = asyncio.Event()
        self._clean = False

    @property
    def replicas(self) -> Mapping[TabletId, Replica]:
        """The replicas of this node, by tablet."""
        return self.peers.replicas

    @property
    def failed_tablets(self) -> Mapping[TabletId, str]:
        """The tablets that could not be recovered, and why."""
        return self.tablets.failed

    async def stopped(self) -> None:
        """Wait until the node must stop, because of ``request_stop`` or a defect."""
        await self._ended.wait()

    def request_stop(self) -> None:
        """End the wait of ``stopped``. Called on the event loop only."""
        self._ended.set()

    def free_bytes(self) -> int:
        """Return the free bytes of the disk, or 0 if the disk fails. May block."""
        try:
            return self.files.space_left(self.layout.root)
        except StorageError as error:
            log.debug("cannot read the free space of the disk: %s", error)
            return 0

    # -- start -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the node. It serves when this returns.

        Raises ``StelaeError`` if it cannot start; everything that was opened is then closed again. The order is:
        directory, clock ceiling and lock; threads and clock; engines; recovery of the tablets; messenger and services;
        replicas."""
        try:
            self._open_directory()
            self._start_loop()
            await self._machine.off_loop(self._open_engines)
            recovered, created = await self._machine.off_loop(self._recover)
            self._machine.settle()
            self._start_messenger()
            self._start_replicas(recovered, created)
        except BaseException:
            for service in reversed(self._services):
                service.stop()
            if self._clock_timer is not None:
                self._clock_timer.cancel()
            await self._machine.off_loop(self._undo.close)
            raise
        log.info("node serves node=%s address=%s", self.node_id, self.address)

    def _open_directory(self) -> None:
        files, layout = self.files, self.layout
        lock = lock_directory(files, layout, self._machine.pid)
        self._undo.callback(lock.release)
        # Runs after log, pools and stores are closed, and before the lock is released.
        self._undo.callback(self._mark_clean)
        wal_name = self.config.wal.name
        found = self._instance.start(cluster=self.config.cluster_id, wal_engine=wal_name)
        self.node_id: NodeId = found.node_id
        self._stored_ceiling = load_ceiling(files, layout)
        self._ceiling = first_ceiling(self._stored_ceiling, self._clock, self.config.clock)
        save_ceiling(files, layout, self._ceiling)

    def _start_loop(self) -> None:
        machine, threads = self._machine, self.config.workers
        self.turns = machine.start(self._crash)
        self._undo.callback(machine.stop)
        self._workers = machine.pool("worker", threads.background_threads)
        self.metadata_pool = machine.pool("metadata", threads.metadata_threads)
        # A pool of its own: if saves of the ceiling waited for saves of votes, the clock could reach its ceiling.
        self._clock_pool = machine.pool("clock", 1)
        self._apply = machine.pool("apply", threads.apply_threads)
        self.scans = machine.pool("scan", threads.apply_threads)
        # A copy that holds a slot must not wait for a thread, so there are as many threads as slots.
        copy = self.config.copy
        self.copies = machine.pool("copy", 1 if copy is None else copy.engine.target_slots(copy.config))
        self.copy_snapshots = machine.pool("copy-take", threads.copy_serve_threads)
        self.copy_reads = machine.pool("copy-read", threads.copy_serve_threads)
        self.time = HybridClock(
            self._clock,
            settings=self.config.clock,
            stored=self._stored_ceiling,
            ceiling=self._ceiling,
            save=self._save_ceiling,
        )
        self.hard_states = HardStateWriter(self.files, self.layout, self.metadata_pool)
        self._keep_clock_ahead()

    def _save_ceiling(self, ceiling: int, done: Callable[[object], None]) -> None:
        def saved(result: object) -> None:
            self._watch.ceiling_saved(result)
            done(result)

        self._clock_pool.run("clock", lambda: save_ceiling(self.files, self.layout, ceiling), saved)

    def _keep_clock_ahead(self) -> None:
        self.time.keep_ahead()
        self._clock_timer = self.turns.call_at(self.turns.now_us() + CLOCK_KEEP_AHEAD_US, self._keep_clock_ahead)

    def _open_engines(self) -> None:
        config = self.config
        services = EngineServices(self.files, self._clock, self.metrics, self._workers)
        self._log_path = self._machine.log_path(config.log)
        wal = self._log_path.engine(config.wal.engine).open(self.layout.wals, config.wal.config, services)
        self._undo.callback(wal.close)
        self.engines = Engines(
            wal=wal,
            consensus=config.consensus.engine,
            consensus_config=config.consensus.config,
            store=config.store.engine,
            store_config=config.store.config,
            services=services,
        )

    def _recover(self) -> tuple[Sequence[RecoveredTablet], bool]:
        names = (self.config.consensus.name, self.config.store.name)
        self.tablets = self._tablet_source(self.files, self.layout, self.engines, names)
        tablet = self.config.tablet
        if tablet is not None:
            self.engines.consensus.check_members(self.node_id, tablet.initial_config())
        created = tablet is not None and self.tablets.create(tablet)
        return self.tablets.recover_all(), created

    def _start_messenger(self) -> None:
        config = self.config
        incarnation = timestamp(physical_us(self.time.now()), self._machine.rng.getrandbits(LOGICAL_BITS))
        self.messenger = Messenger(
            Identity(
                cluster_id=config.cluster_id, node_id=self.node_id, incarnation_id=IncarnationId(f"{incarnation:016x}")
            ),
            clock=self._clock,
            time=self.time,
            defer=self.turns.defer_last,
            settings=config.wire,
            metrics=self.metrics,
            faults=self._machine.network_faults,
            rng=random.Random(self._machine.rng.getrandbits(64)),
        )
        self._undo.callback(self.messenger.close)
        self.peers = PeerTraffic(
            PeerCodec(config.consensus.engine.message_types),
            self.turns,
            self.metrics,
            config.consensus.engine.beat_interval_ms(config.consensus.config) * 1000,
            MemberLinks(self.node_id, self.messenger),
        )
        peers, messenger = self.peers, self.messenger
        messenger.on_message(CONSENSUS, lambda m: peers.consensus_arrived(m.sender, m.sender_incarnation, m.body))
        messenger.on_message(BEAT, lambda m: peers.beat_arrived(m.sender, m.sender_incarnation, m.body))
        messenger.on_message(BEAT_ACK, lambda m: peers.beat_ack_arrived(m.sender, m.sender_incarnation, m.body))
        messenger.on_message(REMOVED, lambda m: peers.removed_arrived(m.sender, m.body))
        messenger.on_peer_change(self._peer_changed)
        messenger.on_superseded = self._crash
        for factory in self._factories:
            service = factory(self)
            service.start()
            self._services.append(service)
        bound = messenger.bind(config.node.listen)
        self.address = config.node.advertise or bound
        messenger.advertise(self._advertised_address())

    def _advertised_address(self) -> str:
        """Return the address at which others reach this node: what its file says, else where it listens.

        ``advertise`` comes first: the address in ``[tablet]`` is that of the tablet's first config."""
        if self.config.node.advertise:
            return self.config.node.advertise
        members = self.config.tablet.members if self.config.tablet is not None else ()
        return next((m.address for m in members if m.node_id == self.node_id), self.address)

    def _start_replicas(self, recovered: Iterable[RecoveredTablet], created: bool) -> None:
        config = self.config
        wal = self._log_path.drive(self.engines.wal, self._apply)
        self._undo.callback(wal.stop)
        self.writer = wal.writer
        self._ports = ReplicaPorts(
            turns=self.turns,
            writer=wal.writer,
            reader=wal.reader,
            hard_states=self.hard_states,
            network=self.peers,
            batcher=self._batcher,
            heartbeats=self.peers.heartbeats,
            members=self.peers.members,
            time=self.time,
            pool=self._apply,
            metadata_pool=self.metadata_pool,
            metrics=self.metrics,
            observer=self._watch,
        )
        self._watch.watch(self.replicas, self.failed_tablets, self.metadata_pool)
        self.peers.start(self.messenger)
        tablet = config.tablet
        hinted = created and tablet is not None and tablet.hinted_leader == self.node_id
        for one in recovered:
            self.host(one, campaign=hinted and tablet is not None and one.superblock.tablet_id == tablet.id)
        self._watch.started()

    def host(self, recovered: RecoveredTablet, *, campaign: bool = False) -> None:
        """Start the replica of a recovered tablet. If it cannot start, only this tablet fails.

        ``campaign``: the replica is the hinted leader of a tablet that never had a leader, and campaigns at once."""
        tablet_id, limits = recovered.superblock.tablet_id, self.config.maintenance
        if not self._log_is_not_from_the_future(recovered):
            return
        try:
            replica = assemble(
                recovered,
                self.engines,
                self._ports,
                node_id=self.node_id,
                superblock_file=self.tablets.superblock_file(tablet_id),
                limits=ReplicaLimits(
                    flush_bytes=limits.flush_bytes,
                    memory_bytes_max=limits.replica_memory_bytes_max,
                    lagging_peer_bytes_max=self.config.log.lagging_peer_bytes_max,
                ),
                rng=random.Random(self._machine.rng.getrandbits(64)),
            )
        except StelaeError as error:
            self.tablets.fail(tablet_id, str(error))
            return
        self.peers.add(replica)
        replica.start()
        if campaign:
            replica.deliver(Campaign(hinted=True))

    def _log_is_not_from_the_future(self, recovered: RecoveredTablet) -> bool:
        """Fail a tablet whose log is from the future: no new write could be above its timestamps (D6)."""
        if recovered.timestamp <= self.time.ceiling:
            self.time.observe(recovered.timestamp)
            return True
        reason = (
            f"its log has timestamp {recovered.timestamp}, which is above {self.time.ceiling}, the ceiling of this "
            "node's clock; set the machine's clock, or replace the replica"
        )
        self.tablets.fail(recovered.superblock.tablet_id, reason)
        return False

    # -- while it runs ---------------------------------------------------------------------------

    def _peer_changed(self, change: PeerChange) -> None:
        if change.lane is Lane.CONTROL:
            (self.peers.peer_reached if change.up else self.peers.peer_lost)(change.node_id)

    def _crash(self, error: BaseException) -> None:
        """End the node because of a defect, or because another process uses its uuid. Its state is not reliable."""
        if self.crashed is None:
            self.crashed = error
            self._ended.set()

    # -- stop ------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop the node in order: no acknowledged write is lost, and the clean-shutdown mark is set."""
        for service in reversed(self._services):
            service.stop()
        for replica in self.replicas.values():
            replica.stop()
        self.peers.stop()
        assert self._clock_timer is not None
        self._clock_timer.cancel()
        await self._drain_log()
        await asyncio.gather(*map(self._close_store, self.replicas.values()))
        self.messenger.close()
        self._clean = self.crashed is None
        await self._machine.off_loop(self._undo.close)
        log.info("node stopped node=%s", self.node_id)

    async def _close_store(self, replica: Replica) -> None:
        ended = asyncio.Event()
        replica.applier.stop(lambda _none: ended.set())
        await ended.wait()
        replica.applier.store.close()

    def _mark_clean(self) -> None:
        if self._clean:
            self._instance.mark_clean()

    async def _drain_log(self) -> None:
        """Wait until every append is committed. A defect ends the wait."""
        drained = asyncio.Event()
        self.writer.close(lambda _result: drained.set())
        self._ended.clear()
        waits = [asyncio.ensure_future(event.wait()) for event in (drained, self._ended)]
        if self.crashed is None:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
