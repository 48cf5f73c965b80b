"""Runs one seed from start to end: masters, servers and clients with faults, then without, until all work is done."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stelae.protocol.actions import ACTION, DeleteReplica, decode_action
from stelae.protocol.catalog_names import TableState, TabletState
from stelae.protocol.master_heartbeats import Heartbeat, ReportedDataState
from stelae.protocol.master_messages import TableDescription
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.events import ReadAsked
from stelae.sim.coverage import Coverage
from stelae.sim.draw import between, stream
from stelae.sim.invariants.base import Violation
from stelae.sim.masters.client import ClientChange, SimClient
from stelae.sim.masters.faults import SAFETY_US, MastersFault, MastersFaultDriver, draw_plan
from stelae.sim.masters.invariants import INVARIANTS
from stelae.sim.masters.master import SimMaster
from stelae.sim.masters.masters_of_run import MastersOfRun
from stelae.sim.masters.messenger import Answered, CallAnswer
from stelae.sim.masters.network import MastersNetwork, SimEndpoint
from stelae.sim.masters.process_endpoint import ProcessEndpoint
from stelae.sim.masters.tablet_groups import ModelReplica, TabletGroups
from stelae.sim.masters.tserver import SimServer
from stelae.sim.masters.world import Committed, MastersWorld
from stelae.sim.scheduler import Scheduler
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import TabletConfig

MASTERS = 3
SERVERS_MIN = 4
SERVERS_MAX = 6
CLIENTS = 3
LIVENESS_US = 60_000_000
STEP_US = 250_000
EVENTS_MAX = 150_000


class MastersRunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one seed.

    Attributes:
        events: number of events that ran.
        virtual_us: virtual time that passed, in microseconds.
        digest: equal for two runs only if the same events ran in the same order.
        plan: the faults that were scheduled.
        entries: number of entries in the committed log.
    """

    seed: int
    events: int
    virtual_us: int
    digest: str
    plan: tuple[MastersFault, ...]
    entries: int
    violation: Violation | None
    coverage: dict[str, int]


class MastersSimulation:
    """One run.

    Args:
        faults: numbers of the planned faults to keep; ``None`` for all.
        changes_max: limit on the changes of each client; ``None`` for no limit.
    """

    def __init__(self, seed: int, *, faults: frozenset[int] | None = None, changes_max: int | None = None) -> None:
        self._seed = seed
        self._scheduler = Scheduler()
        self._coverage = Coverage()
        network = MastersNetwork(self._scheduler, stream(seed, "masters/network"), self._coverage)
        self._world = MastersWorld(self._scheduler, network, self._coverage)
        self._parts = MastersOfRun(self._world, seed, MASTERS, self)
        self._masters = self._parts.masters
        rng = stream(seed, "masters/world")
        count = between(rng, SERVERS_MIN, SERVERS_MAX)
        self._servers = [
            SimServer(self._world, p, stream(seed, f"masters/server/{p}"), self._parts.peers, self._parts.listed)
            for p in range(count)
        ]
        self._server_by_node = {server.node_id: server for server in self._servers}
        self._groups = TabletGroups(self._world, stream(seed, "masters/groups"), self._replicas, self._replica_changed)
        self._clients = [
            SimClient(self._world, n, stream(seed, f"masters/client/{n}"), self._masters) for n in range(CLIENTS)
        ]
        for client in self._clients:
            client.changes_max = changes_max
        plan = draw_plan(seed, MASTERS, count)
        self._plan = tuple(fault for fault in plan if faults is None or fault.number in faults)
        self._driver = MastersFaultDriver(self._world, self._masters, self._parts.present, self._servers)
        self._invariants = [kind(self._world, self._groups) for kind in INVARIANTS]
        self._connect_invariants()

    def _connect_invariants(self) -> None:
        """Connect the invariants to everything that they observe."""
        self._parts.observe(self._observe)
        for server in self._servers:
            server.groups = self._groups
            server.on_deleted = self._deleted
        for client in self._clients:
            client.on_outcome = self._client_got_outcome
            client.on_description = self._client_got_description
        self._world.on_committed = self._committed
        self._world.on_reported = self._reported
        self._world.on_told = self._told

    def _observe(self, master: SimMaster) -> None:
        master.on_applied = self._applied
        master.on_stepped = self._stepped
        master.on_received = self._received
        master.on_answered = self._answered

    def run(self) -> MastersRunResult:
        """Run to the end or to the first violation."""
        self._parts.start()
        for server in self._servers:
            if self._parts.operator is not None:
                server.ask_others(self._parts.rng(server.endpoint.name), self._server_by_node)
            self._parts.let_stray(server)
            server.start()
        for client in self._clients:
            if self._parts.operator is not None:
                client.following.follow(self._parts.rng(client.endpoint.name), self._servers)
            client.start()
        self._groups.start()
        self._driver.schedule(self._plan)
        self._run_until(SAFETY_US)
        if self._world.violation is None:
            self._driver.heal()
            self._finish()
        return MastersRunResult(
            seed=self._seed,
            events=self._scheduler.events,
            virtual_us=self._scheduler.now_us,
            digest=self._scheduler.digest(),
            plan=self._plan,
            entries=len(self._world.log),
            violation=self._world.violation,
            coverage=self._coverage.as_dict(),
        )

    # -- facts for the invariants ------------------------------------------------------------------

    def _committed(self, before: Catalog, entry: Committed) -> None:
        for invariant in self._invariants:
            invariant.on_committed(before, entry)
        self._parts.count_change(entry)

    def _applied(self, master: SimMaster, before: Catalog) -> None:
        for invariant in self._invariants:
            invariant.on_applied(master, before)

    def _stepped(self, master: SimMaster) -> None:
        for invariant in self._invariants:
            invariant.on_stepped(master)

    def _reported(self, heartbeat: Heartbeat) -> None:
        for invariant in self._invariants:
            invariant.on_reported(heartbeat)

    def _received(self, master: SimMaster, heartbeat: Heartbeat) -> None:
        for invariant in self._invariants:
            invariant.on_received(master, heartbeat)

    def _answered(self, master: SimMaster, asked: ReadAsked, within_us: int) -> None:
        for invariant in self._invariants:
            invariant.on_answered(master, asked, within_us)

    def _told(self, name: str, told: TabletConfig, before: TabletConfig | None, after: TabletConfig) -> None:
        for invariant in self._invariants:
            invariant.on_told(name, told, before, after)

    def _deleted(self, server: SimServer, action: DeleteReplica, replica: ModelReplica) -> None:
        for invariant in self._invariants:
            invariant.on_deleted(server, action)

    def _client_got_outcome(self, asked: ClientChange) -> None:
        for invariant in self._invariants:
            invariant.on_outcome(asked)

    def _client_got_description(self, description: TableDescription) -> None:
        for invariant in self._invariants:
            invariant.on_description(description)

    # -- Router ------------------------------------------------------------------------------------

    def is_up(self, to: NodeId) -> bool:
        """Return true if a process runs on a node."""
        return self._endpoint_of(to).up

    def carry(
        self, source: ProcessEndpoint, sender: NodeId, to: NodeId, kind: str, body: bytes, answered: Answered
    ) -> None:
        """Carry a request of a master to another master or to a tablet server."""
        network, target = self._world.network, self._endpoint_of(to)

        def answer(result: CallAnswer) -> None:
            network.send(target.name, source, f"{kind} answer", lambda: answered(result))

        if kind == ACTION:
            self._send_action(self._masters[sender], self._server_by_node[to], body, answer)
            return
        master = self._parts.peers[to]
        network.send(source.name, target, kind, lambda: master.receive_request(sender, kind, body, answer))

    def _endpoint_of(self, node_id: NodeId) -> SimEndpoint:
        master = self._parts.peers.get(node_id)
        return self._server_by_node[node_id].endpoint if master is None else master.endpoint

    def _send_action(self, master: SimMaster, server: SimServer, body: bytes, answered: Answered) -> None:
        action, term = decode_action(body), master.core.status().term
        for invariant in self._invariants:
            invariant.on_sent(master, action)
        self._world.network.send(
            master.endpoint.name, server.endpoint, type(action).__name__, lambda: server.act(action, term, answered)
        )
        master.action_sent(action)

    # -- replicas of the servers -------------------------------------------------------------------

    def _replicas(self, node_id: NodeId) -> dict[TabletId, ModelReplica] | None:
        return self._server_by_node[node_id].replicas()

    def _replica_changed(self, node_id: NodeId, tablet_id: TabletId) -> None:
        self._server_by_node[node_id].changed(tablet_id)

    # -- phases ------------------------------------------------------------------------------------

    def _run_until(self, until_us: int) -> None:
        self._scheduler.at(until_us, "phase", lambda: None)
        while self._world.violation is None and self._scheduler.now_us < until_us:
            self._scheduler.run_one()
            if self._scheduler.events > EVENTS_MAX:
                self._world.report("liveness", f"{EVENTS_MAX} events and no end")

    def _finish(self) -> None:
        """Run the liveness phase: clients start nothing new, and all changes are completed on all servers."""
        for client in self._clients:
            client.stopping = True
        self._parts.stop()
        limit_us = self._scheduler.now_us + LIVENESS_US
        unfinished = self._unfinished_work()
        while self._world.violation is None and unfinished:
            if self._scheduler.now_us > limit_us:
                self._world.report(
                    "liveness", f"not at rest {LIVENESS_US} us after healing: {'; '.join(unfinished)}"[:2000]
                )
            self._run_until(self._scheduler.now_us + STEP_US)
            unfinished = self._unfinished_work()
        for invariant in self._invariants if self._world.violation is None else ():
            invariant.at_end(self._parts.present(), self._servers)

    def _unfinished_work(self) -> list[str]:
        committed_catalog = self._world.committed_catalog
        found = [f"{client.endpoint.name} waits" for client in self._clients if not client.idle]
        found += [
            f"{master.endpoint.name} is behind"
            for master in self._parts.present()
            if not master.has_core or master.core.catalog.applied != committed_catalog.applied
        ]
        found += self._parts.unfinished(self._servers)
        found += [
            f"table {t.name} is ALTERING" for t in committed_catalog.tables.values() if t.state is TableState.ALTERING
        ]
        for tablet in committed_catalog.tablets.values():
            table = committed_catalog.tables[tablet.table_id]
            if not tablet.terminal and tablet.state is not TabletState.RUNNING and table.state is TableState.RUNNING:
                found.append(f"tablet {tablet.tablet_id} of {table.name} is {tablet.state}")
        return [*found, *self._left_over(committed_catalog)]

    def _left_over(self, committed_catalog: Catalog) -> Iterable[str]:
        for server in self._servers:
            for tablet_id, replica in server.disk.items():
                record = committed_catalog.tablets.get(tablet_id)
                if record is not None and record.terminal and replica.data_state is not ReportedDataState.DELETED:
                    yield f"{server.endpoint.name} holds {tablet_id}, which is {record.state}"


def run_seed(seed: int, *, faults: frozenset[int] | None = None, changes_max: int | None = None) -> MastersRunResult:
    """Run one seed; see :class:`MastersSimulation`."""
    return MastersSimulation(seed, faults=faults, changes_max=changes_max).run()


def reproduce_command(seed: int, faults: Iterable[int] | None = None, changes_max: int | None = None) -> str:
    """Return the command that repeats a run."""
    command = f"stelae sim masters --seed {seed}"
    if faults is not None:
        command += f" --faults {','.join(str(number) for number in faults) or 'none'}"
    if changes_max is not None:
        command += f" --changes-max {changes_max}"
    return command
