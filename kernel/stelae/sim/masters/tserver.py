"""One simulated tablet server: production's heartbeat reporter and fences, with a model of its disk."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

from stelae.protocol.actions import (
    AlterSchema,
    ChangeConfig,
    CreateReplica,
    DeleteReplica,
    ServerAction,
    TransferLeadership,
)
from stelae.protocol.codec import decode, encode
from stelae.protocol.fences import FenceVerdict, LocalReplica, judge
from stelae.protocol.master_heartbeats import HEARTBEAT, Heartbeat, HeartbeatReply, ReplicaStatus, ReportedDataState
from stelae.protocol.masters_messages import MASTERS, MastersRequest, MastersView
from stelae.server.tserver.known_masters import KnownMasters
from stelae.server.tserver.reporting import Reporter, ServerFacts
from stelae.sim.draw import between, chance, pick, skewed
from stelae.sim.masters.master import SimMaster
from stelae.sim.masters.messenger import Answered, CallAnswer
from stelae.sim.masters.network import SimEndpoint
from stelae.sim.masters.tablet_groups import ModelReplica, TabletGroups
from stelae.sim.masters.world import FOREIGN, MastersWorld, master_node, server_node
from stelae.spi.consensus import Role
from stelae.spi.errors import CallerError
from stelae.spi.ids import ZERO, IncarnationId, NodeId, TabletId
from stelae.spi.members import Member, TabletConfig
from stelae.spi.schema import Schema
from stelae.wire.refusals import error_fields

INTERVAL_US = 250_000
SILENT_US = 3_000_000
"""After this time without a reply, a master counts as one that does not lead."""

LATE_US = 200_000
"""Time from the first heartbeat of a new run to the arrival of the last one of the previous run."""
WORK_US = (1_000, 900_000)
"""Shortest and longest time from the arrival of an action to its effect."""

EDIT_US = (1_000_000, 4_000_000)
"""Shortest and longest time between two edits of the file of a server that strays."""

FREE_BYTES = 1 << 40
"""No server is ever full."""

STRAY_SHARE = 0.5
"""The share of the starts at which the file of a server that strays names a master of another cluster."""

Deleted = Callable[["SimServer", DeleteReplica, ModelReplica], None]


class SimServer:
    """One tablet server, across all its runs.

    Attributes:
        disk: its replicas by tablet. They survive crashes.
        foreign: a tablet of another cluster, of which it has a replica from the start.
        deaf: true while the actions of masters are lost.
    """

    def __init__(
        self,
        world: MastersWorld,
        position: int,
        rng: random.Random,
        masters: Mapping[NodeId, SimMaster],
        listed: Sequence[Member],
    ) -> None:
        self.endpoint = SimEndpoint(f"s{position}")
        self.position = position
        self.node_id = server_node(position)
        self.disk: dict[TabletId, ModelReplica] = {}
        self.foreign = TabletId(f"foreign-{position}")
        self.deaf = False
        self.groups: TabletGroups | None = None
        self.on_deleted: Deleted = lambda server, action, replica: None
        self._world = world
        self._rng = rng
        self._masters = masters
        self._listed = listed
        self._leader: NodeId | None = None
        self._known = KnownMasters(listed, None)
        self._epoch = 0
        self._sent: dict[str, Heartbeat] = {}
        self._late: dict[str, Heartbeat] = {}
        self._straying: tuple[random.Random, Member] | None = None
        self._reporter = self._new_reporter()
        self._asking: random.Random | None = None
        self._servers: Mapping[NodeId, SimServer] = {}

    def ask_others(self, rng: random.Random, servers: Mapping[NodeId, SimServer]) -> None:
        """Ask other nodes for the masters from now on, whenever no master names the leader."""
        self._asking, self._servers = rng, servers

    def stray(self, rng: random.Random, foreign: Member) -> None:
        """Let the file name a master of another cluster by mistake, besides those of this one, at some starts.

        Somebody edits the file and starts the server again from time to time."""
        self._straying = rng, foreign

        def edited() -> None:
            if self.endpoint.up and not self.endpoint.paused and not self._world.healed:
                self.crash()
                self.restart()
            if not self._world.healed:
                self._world.scheduler.after(between(rng, *EDIT_US), "edit", edited)

        self._world.scheduler.after(between(rng, *EDIT_US), "edit", edited)

    def start(self) -> None:
        """Start the first run, with a replica of a tablet that no master knows on the disk."""
        config = TabletConfig(op_id=ZERO, members=())
        self.disk[self.foreign] = ModelReplica(data_state=ReportedDataState.READY, config=config, schema_version=1)
        self._reporter.replica_changed(self.status(self.foreign))
        self._beat(self._epoch)

    def crash(self) -> None:
        """End the process. The disk keeps its contents."""
        self.endpoint.stop()

    def restart(self) -> None:
        """Start again from the disk. Partly copied replicas become tombstones (source "tablet startup")."""
        if self.endpoint.up:
            return
        self._epoch += 1
        self._late, self._sent = self._sent, {}
        self.endpoint.up = True
        self._reporter = self._new_reporter()
        for tablet_id, replica in self.disk.items():
            if replica.data_state is ReportedDataState.COPYING:
                replica.data_state = ReportedDataState.DELETED
            self._reporter.replica_changed(self.status(tablet_id))
        self._beat(self._epoch)

    def replicas(self) -> dict[TabletId, ModelReplica] | None:
        """Return its replicas, or ``None`` if it is down or paused."""
        return self.disk if self.endpoint.up and not self.endpoint.paused else None

    def changed(self, tablet_id: TabletId) -> None:
        """Report that a replica has changed."""
        if self.endpoint.up:
            self._reporter.replica_changed(self.status(tablet_id))

    def status(self, tablet_id: TabletId) -> ReplicaStatus:
        """Return the status of a replica for a heartbeat."""
        replica = self.disk[tablet_id]
        group = None if self.groups is None else self.groups.groups.get(tablet_id)
        ready = replica.data_state is ReportedDataState.READY
        leads = group is not None and ready and group.leader == self.node_id
        return ReplicaStatus(
            tablet_id=tablet_id,
            data_state=replica.data_state,
            role=Role.LEADER if leads else Role.FOLLOWER,
            term=0 if group is None else group.term,
            config=replica.config if ready else None,
            schema_version=replica.schema_version,
            change_pending=group is not None and leads and group.pending is not None,
            unhealthy=self.groups.unhealthy(group) if self.groups is not None and group is not None and leads else (),
        )

    def act(self, action: ServerAction, term: int, answered: Answered) -> None:
        """Handle an action of a master that led in ``term``. Its fence decides later whether it takes effect."""
        if self.deaf:
            self._world.coverage.hit(f"unheard.{type(action).__name__}")
            return
        epoch = self._epoch
        delay_us = skewed(self._rng, *WORK_US)

        def effect() -> None:
            if epoch == self._epoch:
                self.endpoint.receive(lambda: answered(self._effect(action, term)))

        self._world.scheduler.after(delay_us, f"{self.endpoint.name} acts", effect)

    def _effect(self, action: ServerAction, term: int) -> CallAnswer:
        """Check the fence of an action and carry the action out. Return the answer to the master."""
        judgement = judge(action, self._local_replica(action.tablet_id))
        self._world.coverage.hit(f"action.{type(action).__name__}.{judgement.verdict}")
        if judgement.verdict is FenceVerdict.ACT:
            self._carry_out(action, term)
        return error_fields(CallerError(judgement.reason)) if judgement.verdict is FenceVerdict.REFUSED else b""

    def _carry_out(self, action: ServerAction, term: int) -> None:
        if any(entry.op_id.term > term for entry in self._world.log[-1:]):
            self._world.coverage.hit("action.of_a_deposed_master")
        assert self.groups is not None
        match action:
            case CreateReplica():
                version = Schema.from_bytes(action.schema).version
                self.disk[action.tablet_id] = ModelReplica(
                    data_state=ReportedDataState.READY, config=action.config, schema_version=version
                )
                self.groups.created(self.node_id, action.tablet_id, action.config, version)
            case DeleteReplica():
                replica = self.disk[action.tablet_id]
                self._world.coverage.hit(f"deleted.{type(action.fence).__name__}")
                self.on_deleted(self, action, replica)
                replica.data_state = ReportedDataState.DELETED
                self.changed(action.tablet_id)
            case AlterSchema():
                self.groups.alter(action.tablet_id, action.version)
            case ChangeConfig():
                self.groups.change(action)
            case TransferLeadership():
                self.groups.transfer(action)
            case _:
                assert_never(action)

    def _local_replica(self, tablet_id: TabletId) -> LocalReplica | None:
        replica = self.disk.get(tablet_id)
        if replica is None or self.groups is None:
            return None
        group = self.groups.groups.get(tablet_id)
        return LocalReplica(
            data_state=replica.data_state,
            committed_config=replica.config.op_id,
            newest_config=replica.newest,
            schema_version=replica.schema_version,
            leads=self.groups.leads(self.node_id, tablet_id),
            change_pending=group is not None and group.pending is not None,
        )

    def _new_reporter(self) -> Reporter:
        """Return the reporter of a new run. The config of the masters that the last run knew is stored."""
        incarnation = IncarnationId(f"{(self.position + 1) * 1000 + self._epoch:016x}")
        self._known, self._leader = KnownMasters(self._file(), self._known.followed), None
        reporter = Reporter(self.node_id, incarnation, (), SILENT_US)
        reporter.masters_changed(self._known.addresses, self._known.followed)
        return reporter

    def _file(self) -> Sequence[Member]:
        """Return the masters in its file. A server that has no config yet would belong to whichever it hears first."""
        if self._straying is not None and self._known.followed is not None:
            rng, foreign = self._straying
            if chance(rng, STRAY_SHARE):
                self._world.coverage.hit("masters.file_of_two_clusters")
                return [*self._listed, foreign]
        return self._listed

    def _beat(self, epoch: int) -> None:
        """Send one round of heartbeats, and schedule the next."""
        if epoch != self._epoch or not self.endpoint.up:
            return
        self._world.scheduler.after(
            between(self._rng, INTERVAL_US // 2, INTERVAL_US), "beat", lambda: self._beat(epoch)
        )
        if self.endpoint.paused:
            return
        self._refresh()
        self._look_for_masters()
        address, location = f"10.0.0.{self.position + 1}:7051", f"/dc/rack/{self.position}"
        facts = ServerFacts(address=address, location=location, free_bytes=FREE_BYTES)
        for node_id, heartbeat in self._reporter.heartbeats(facts, self._world.scheduler.now_us):
            self._send(self._masters[node_id], heartbeat, epoch)

    def masters_view(self) -> MastersView:
        """Return the masters as this server knows them, for clients (``MasterList``)."""
        known = self._known
        return MastersView(
            node_id=self.node_id, config=known.config, leader=self._leader, cluster_created_us=known.cluster_created_us
        )

    def _answered(self, master: NodeId, reply: HeartbeatReply) -> None:
        """Learn the masters from the answer of one, as ``MasterList`` does."""
        self._leader = reply.leader or self._leader
        learned = self._learn(reply.masters, reply.cluster_created_us)
        if self._known.answered(master, reply.leader, self._world.scheduler.now_us) or learned:
            self._reporter.masters_changed(self._known.addresses, self._known.followed)

    def _look_for_masters(self) -> None:
        """Turn to the masters of the file, and ask other nodes, if no master of the config names the leader."""
        if self._known.waited(self._world.scheduler.now_us):
            self._world.coverage.hit("masters.lost_by_server")
            self._reporter.masters_changed(self._known.addresses, self._known.followed)
        if self._asking is not None and self._known.asks:
            self._ask_for_masters(self._asking)

    def _ask_for_masters(self, rng: random.Random) -> None:
        """Ask a member of one of its tablets, or a master."""
        ready = [replica.config for replica in self.disk.values() if replica.data_state is ReportedDataState.READY]
        members = {member.node_id for config in ready for member in config.members} - {self.node_id}
        asked = pick(rng, sorted(members | self._known.addresses.keys()))
        epoch, network = self._epoch, self._world.network
        master = self._masters.get(asked)
        endpoint = self._servers[asked].endpoint if master is None else master.endpoint

        def heard(answer: CallAnswer) -> None:
            if epoch != self._epoch or not isinstance(answer, bytes):
                return
            view = decode(answer, MastersView)
            if self._learn(view.config, view.cluster_created_us):
                self._world.coverage.hit(f"masters.found_through_{'server' if master is None else 'master'}")
                self._reporter.masters_changed(self._known.addresses, self._known.followed)

        def answered(answer: CallAnswer) -> None:
            network.send(endpoint.name, self.endpoint, MASTERS, lambda: heard(answer))

        def ask() -> None:
            if master is None:
                answered(encode(self._servers[asked].masters_view()))
            else:
                master.receive_request(self.node_id, MASTERS, encode(MastersRequest()), answered)

        network.send(self.endpoint.name, endpoint, MASTERS, ask)

    def _learn(self, config: TabletConfig | None, cluster_created_us: int) -> bool:
        before = self._known.config
        learned = config is not None and self._known.learn(config, cluster_created_us)
        if config is not None and config.member(master_node(FOREIGN)) is not None:
            self._world.coverage.hit("masters.told_of_another_cluster")
            if learned:
                self._world.report(
                    "one_cluster", f"{self.endpoint.name} follows config {config.op_id} of another cluster"
                )
            return learned
        if config is not None and self._known.config is not None:
            self._world.on_told(self.endpoint.name, config, before, self._known.config)
        return learned

    def _refresh(self) -> None:
        """Update all statuses, because what a leader reports about its members changes without an event."""
        for tablet_id in self.disk:
            self._reporter.replica_changed(self.status(tablet_id))

    def _send(self, master: SimMaster, heartbeat: Heartbeat, epoch: int) -> None:
        def answered(answer: CallAnswer) -> None:
            self._world.network.send(master.endpoint.name, self.endpoint, "heartbeat reply", lambda: replied(answer))

        def replied(answer: CallAnswer) -> None:
            if epoch != self._epoch:
                return
            if not isinstance(answer, bytes) and master.position == FOREIGN:
                self._world.coverage.hit("masters.refused_by_another_cluster")
            if isinstance(answer, bytes):
                reply = decode(answer, HeartbeatReply)
                self._answered(master.node_id, reply)
                self._reporter.replied(master.node_id, reply)

        body = encode(heartbeat)
        self._world.on_reported(heartbeat)
        if heartbeat.report is not None:
            kind = "full" if heartbeat.report.full else "incremental"
            self._world.coverage.hit(f"report.{kind}")
        self._world.network.send(
            self.endpoint.name,
            master.endpoint,
            "heartbeat",
            lambda: master.receive_request(self.node_id, HEARTBEAT, body, answered),
        )
        self._sent[master.endpoint.name] = heartbeat
        late = self._late.pop(master.endpoint.name, None)
        if late is not None:
            self._deliver_late(master, late)

    def _deliver_late(self, master: SimMaster, heartbeat: Heartbeat) -> None:
        """Deliver the last heartbeat of the previous run after the restart."""

        def arrive() -> None:
            self._world.coverage.hit("report.of_a_former_run")
            body = encode(heartbeat)
            master.endpoint.receive(lambda: master.receive_request(self.node_id, HEARTBEAT, body, lambda answer: None))

        self._world.scheduler.after(LATE_US, "late heartbeat", arrive)
