"""Runs one seed from start to end: a safety phase with faults, then a liveness phase without faults."""

from __future__ import annotations

from functools import cache

from stelae.host.peer_codec import PeerCodec
from stelae.sim.cluster import SimCluster
from stelae.sim.coverage import Coverage
from stelae.sim.draw import stream
from stelae.sim.engines import SimEngines
from stelae.sim.fact_feed import FactFeed
from stelae.sim.fault_plan import PERMANENT, draw_plan, select_faults
from stelae.sim.faults import FaultDriver
from stelae.sim.handover_watch import HandoverWatch
from stelae.sim.history import History
from stelae.sim.hosting.replica_on_disk import ReplicaOnDisk
from stelae.sim.invariants import FactListener
from stelae.sim.invariants.convergence import Convergence, unanswered_writes
from stelae.sim.leadership_mover import LeadershipMover
from stelae.sim.lookup_reader import LookupReader
from stelae.sim.member_changer import SimMemberChanger
from stelae.sim.node_start import draw_node_ids, initial_config
from stelae.sim.prober import Prober
from stelae.sim.profile import Profile, ProfileKind, draw_profile
from stelae.sim.replica_deleter import ReplicaDeleter
from stelae.sim.replica_reader import ReplicaReader
from stelae.sim.report import RunResult
from stelae.sim.run_parts import RunParts
from stelae.sim.run_scope import FULL_RUN, RunScope
from stelae.sim.scheduler import Scheduler
from stelae.sim.schema_changer import SchemaChanger, TableView
from stelae.sim.trace.recorder import TraceRecorder
from stelae.sim.trace.records import RunTrace, ViolationFound
from stelae.sim.witness_counts import WitnessCounts
from stelae.sim.workload import ModelClient, WorkloadContext
from stelae.sim.world import ObservedNode, World
from stelae.sim.writer_client import WriterClient
from stelae.spi.errors import StelaeError

EVENTS_MIN = 5_000
"""A run continues under load until this number of events have run."""

EVENTS_MAX = 200_000
"""Limit on the events of a run. A run that needs more is stuck in a loop."""

LIVENESS_US = 60_000_000
"""Longest time that a healed cluster may take to become quiet: many election timeouts."""

AWAY_US = 300_000
"""Time for which a replica is down when it is restarted without load: less than most election timeouts."""

FLUSHED_US = 3_000_000
"""Longest time that replicas get to flush older rows after a schema change without load."""

LOAD_US = 2_000_000
"""Time for which clients continue after healing, to check progress."""

STEP_US = 200_000
"""Time between two checks for the end of the liveness phase."""


@cache
def _engines(consensus: str) -> SimEngines:
    return SimEngines.installed(consensus)


class Simulation:
    """One run.

    Args:
        kind: the number of nodes, and whether members change.
        scope: the faults, operations and changes to keep.
        record: record the trace of the run. The run is the same with and without it.
    """

    def __init__(
        self,
        seed: int,
        engines: SimEngines,
        *,
        kind: ProfileKind = ProfileKind.STANDARD,
        scope: RunScope = FULL_RUN,
        record: bool = False,
    ) -> None:
        self._seed = seed
        self._kind = kind
        self._scope = scope
        self._profile = draw_profile(seed, kind)
        # A member that comes back lacks hundreds of entries: their messages are small, and the network reorders them.
        self._events_max = 2 * EVENTS_MAX if self._profile.nodes > 3 else EVENTS_MAX
        self._plan = select_faults(draw_plan(seed, self._profile), scope.faults)
        self._scheduler = Scheduler()
        self._coverage = Coverage()
        self._history = History()
        scheduler = self._scheduler
        self._world = _new_world(seed, self._profile, scheduler)
        self._recorder = _recorder(self._world, engines, scheduler) if record else None
        self._handovers = HandoverWatch() if self._profile.transfer_us is not None else None
        self._facts = FactFeed(self._world, self._scheduler, self._coverage, self._listeners())
        self._cluster = SimCluster(seed, self._profile, engines, self._scheduler, self._facts, self._coverage)
        self._cluster.network.observer = self._recorder
        self._healed_us: int | None = None
        self._driver = self._new_fault_driver()
        self._table = TableView()
        self._schema_changer = self._new_schema_changer()
        self._member_changer = self._new_member_changer()
        mover = LeadershipMover(self._parts(), stream(seed, "leadership"), self._handovers)
        deleter = ReplicaDeleter(self._parts(), stream(seed, "deleter"))
        self._operators = (self._schema_changer, self._member_changer, mover, deleter)
        self._clients = self._make_clients()

    def _listeners(self) -> list[FactListener]:
        found: list[FactListener] = [WitnessCounts(self._coverage)] if self._profile.witnesses else []
        found += [self._handovers] if self._handovers is not None else []
        return found if self._recorder is None else [*found, self._recorder]

    def _new_fault_driver(self) -> FaultDriver:
        world, cluster = self._world, self._cluster
        return FaultDriver(self._scheduler, cluster.network, cluster.nodes, world, self._coverage)

    def _new_schema_changer(self) -> SchemaChanger:
        return SchemaChanger(
            self._scheduler,
            self._cluster.gateway,
            self._table,
            self._facts,
            self._profile,
            stream(self._seed, "alterer"),
            self._coverage,
        )

    def _new_member_changer(self) -> SimMemberChanger:
        loses_replica = any(fault.kind in PERMANENT for fault in draw_plan(self._seed, self._profile))
        return SimMemberChanger(
            self._parts(),
            stream(self._seed, "members"),
            loses_replica=loses_replica,
            changes_max=self._scope.changes_max,
        )

    def _parts(self) -> RunParts:
        cluster = self._cluster
        return RunParts(self._scheduler, cluster.network, cluster.nodes, self._world, self._profile, self._coverage)

    def _make_clients(self) -> list[ModelClient | WriterClient | ReplicaReader | LookupReader]:
        """Return the clients that must be started, and connect all clients and the prober to the fact feed."""
        context = WorkloadContext(
            self._scheduler, self._cluster, self._history, self._facts, self._profile, self._coverage, self._table
        )
        operations_max = self._scope.operations_max
        clients = [
            ModelClient(context, number, stream(self._seed, f"client/{number}"), operations_max)
            for number in range(self._profile.clients)
        ]
        gateway, count = self._cluster.gateway, range(self._profile.writers)
        writers = [WriterClient(context, gateway, number, self._seed, operations_max) for number in count]
        readers = [
            ReplicaReader(context, gateway, writers[number], number, stream(self._seed, f"reader/{number}"))
            for number in count
        ]
        streams = [stream(self._seed, name) for name in ("lookups", "short_scans")]
        lookups = [LookupReader(context, gateway, *streams)] if self._profile.lookups else []
        prober = Prober(context, stream(self._seed, "prober"), readers[0].probe)

        def leader_serves(position: int) -> None:
            prober.leader_serves(position)
            for client in clients:
                client.leader_serves(position)
            asked: list[ReplicaReader | LookupReader] = [*readers, *lookups]
            for reader in asked:
                reader.leader_serves(position)

        self._facts.leader_serves = leader_serves
        self._facts.leader_elected = self._leader_elected
        self._facts.applied_ahead = self._cluster.request_early_flush
        return [*clients, *writers, *readers, *lookups]

    def _leader_elected(self, position: int) -> None:
        self._cluster.request_early_read_index(position)
        self._member_changer.leader_elected(position)

    def run(self) -> RunResult:
        """Run to the end or to the first violation."""
        self._cluster.start()
        for client in self._clients:
            client.start()
        for operator in self._operators:
            operator.start()
        self._driver.schedule(self._plan)
        self._run_until(self._profile.safety_us)
        if self._facts.violation is None:
            self._healed_us = self._scheduler.now_us
            self._driver.heal()
            self._run_liveness_phase()
        self._cluster.stop()
        return RunResult(
            seed=self._seed,
            kind=self._kind,
            scope=self._scope,
            events=self._scheduler.events,
            virtual_us=self._scheduler.now_us,
            digest=self._scheduler.digest(),
            plan=self._plan,
            writes_acknowledged=len(self._history.acknowledged()),
            violation=self._facts.violation,
            coverage=self._coverage.as_dict(),
        )

    def trace(self, result: RunResult) -> RunTrace:
        """Return the trace of the run that returned ``result``.

        Raises:
            ValueError: the run was not recorded.
        """
        if self._recorder is None:
            raise ValueError("the run was not recorded")
        records = list(self._recorder.records)
        if (found := result.violation) is not None:
            records.append(ViolationFound(at_us=found.at_us, invariant=found.invariant, detail=found.detail))
        healed_us = result.virtual_us if self._healed_us is None else self._healed_us
        return RunTrace(result=result, nodes=len(self._world.nodes), healed_us=healed_us, records=tuple(records))

    def _run_until(self, until_us: int) -> None:
        """Run the events up to a time or to the first violation."""
        self._scheduler.at(until_us, "phase", lambda: None)
        while self._facts.violation is None and self._scheduler.now_us < until_us:
            self._scheduler.run_one()
            if self._scheduler.events > self._events_max:
                self._facts.report("liveness", f"{self._events_max} events and no end")

    def _run_liveness_phase(self) -> None:
        """Run the liveness phase: continue under load, stop the load, wait until all is quiet, compare the replicas."""
        healed_us = self._scheduler.now_us
        self._run_until(healed_us + LOAD_US // 2)
        self._transfer_leadership()
        self._run_until(healed_us + LOAD_US)
        while self._facts.violation is None and self._scheduler.events < EVENTS_MIN:
            self._run_until(self._scheduler.now_us + STEP_US)
        for one in (*self._clients, *self._operators):
            one.stopping = True
        self._wait_until_quiet("healing")
        if self._facts.violation is None and self._profile.alter_us is not None:
            self._alter_while_idle()
        if self._facts.violation is None:
            self._restart_one()
        if self._facts.violation is None:
            self._check_end()

    def _wait_until_quiet(self, after: str) -> None:
        """Run until every write is answered and all replicas serve and have the same contents."""
        for node in self._cluster.nodes:
            if node.running is not None:
                node.running.scratch_log.stopping = True
                if node.running.snapshot_reader is not None:
                    node.running.snapshot_reader.stopping = True
        limit_us = self._scheduler.now_us + LIVENESS_US
        while self._facts.violation is None and not self._is_quiet():
            if self._scheduler.now_us > limit_us:
                self._facts.report("liveness", self._describe_open_work(after))
            self._run_until(self._scheduler.now_us + STEP_US)

    def _alter_while_idle(self) -> None:
        """Change the schema without load, and wait until the stores may have flushed or merged the older rows."""
        self._schema_changer.swap()
        self._wait_until_quiet("a schema change while idle")
        self._run_until(self._scheduler.now_us + min(FLUSHED_US, 2_000 * self._profile.store.flush_interval_ms))

    def _restart_one(self) -> None:
        """Restart a replica that does not lead, without load: it must catch up in an idle tablet too."""
        leader = self._world.leader()
        members = [self._cluster.nodes[view.position] for view in self._world.members()]
        others = [node for node in members if node.view.position != leader and node.up and not node.given_up]
        if not others:
            return
        node = others[self._seed % len(others)]
        node.kill()
        self._run_until(self._scheduler.now_us + AWAY_US)
        node.start()
        self._wait_until_quiet("a restart while idle")
        self._coverage.hit("restart.idle")

    def _transfer_leadership(self) -> None:
        """Transfer leadership under load, as before a planned stop. Does nothing if no node leads."""
        position = self._world.leader()
        node = self._cluster.nodes[position] if position is not None else None
        if node is None or (replica := node.replica) is None:
            return

        def ended(error: StelaeError | None) -> None:
            self._coverage.hit("transfer.done" if error is None else "transfer.refused")

        node.run(lambda: replica.transfer(None, ended))

    def _is_quiet(self) -> bool:
        changed = self._schema_changer.idle and self._member_changer.is_settled()
        idle = changed and all(client.idle for client in self._clients)
        return idle and self._cluster.is_converged()

    def _describe_open_work(self, after: str) -> str:
        states = [node.describe() for node in self._cluster.nodes]
        waiting = unanswered_writes(self._history.operations)
        altering = "" if self._schema_changer.idle else "; a schema change is open"
        return f"not quiet {LIVENESS_US} us after {after}; open writes {waiting[:9]}{altering}; {states}"

    def _check_end(self) -> None:
        self._facts.at_end()
        convergence = Convergence(self._world, self._facts.report)
        convergence.judge(self._cluster.replica_contents(), self._facts.expected_rows())


def _new_world(seed: int, profile: Profile, scheduler: Scheduler) -> World:
    node_ids = draw_node_ids(seed, profile.nodes)
    nodes = [ObservedNode(position, node_id) for position, node_id in enumerate(node_ids)]
    config = initial_config(node_ids)
    for node in nodes:
        if config.member(node.node_id) is None:
            node.on_disk = ReplicaOnDisk.NOTHING
    return World(
        nodes=nodes,
        now_us=lambda: scheduler.now_us,
        initial_config=config,
        copies=profile.copies,
        election_timeout_us=profile.election_timeout_ms * 1_000,
        member_join_timeout_us=profile.member_join_timeout_ms * 1_000,
    )


def run_seed(seed: int, *, kind: ProfileKind = ProfileKind.STANDARD, scope: RunScope = FULL_RUN) -> RunResult:
    """Run one seed with the installed engines; see :class:`Simulation`.

    Raises:
        PluginError: an engine is missing or broken.
    """
    return Simulation(seed, _engines(kind.consensus), kind=kind, scope=scope).run()


def record_seed(seed: int, *, kind: ProfileKind = ProfileKind.STANDARD, scope: RunScope = FULL_RUN) -> RunTrace:
    """Run one seed as ``run_seed`` does, and return its trace.

    Raises:
        PluginError: an engine is missing or broken.
    """
    simulation = Simulation(seed, _engines(kind.consensus), kind=kind, scope=scope, record=True)
    return simulation.trace(simulation.run())


def _recorder(world: World, engines: SimEngines, scheduler: Scheduler) -> TraceRecorder:
    codec = PeerCodec(engines.consensus.message_types)
    return TraceRecorder(lambda: scheduler.now_us, codec, [node.node_id for node in world.nodes])
