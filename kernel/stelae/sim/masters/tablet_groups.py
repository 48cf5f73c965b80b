"""A model of the tablets: each is a consensus group of the replicas on the tablet servers.

The model has what masters depend on: leaders, committed configs with their op ids, compare-and-set, new members that
are copied and promoted, and removed members that do not know of their removal.

The masters of a run are real nodes, and the tablets are not: each would be three replicas with a log and a store, and
runs would have one or two tablets instead of dozens. The simulators of members and of copies run the real replicas, and
`stelae demo` and `stelae chaos` run both together."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from stelae.protocol.actions import ChangeConfig, ConfigChange, TransferLeadership
from stelae.protocol.master_heartbeats import ReportedDataState
from stelae.sim.draw import between, chance, pick, skewed
from stelae.sim.masters.world import MastersWorld
from stelae.spi.ids import ZERO, NodeId, OpId, TabletId
from stelae.spi.members import Member, MemberType, TabletConfig

ROUND_US = 150_000
FAILED_US = 1_500_000
"""After this time without a response, a leader reports a member as unhealthy."""
GIVEN_UP_US = 4_000_000
"""After this time without a response, a leader removes a new member (behaviour C12)."""
COMMIT_US = (20_000, 700_000)
COPY_US = (20_000, 900_000)


@dataclass(slots=True, kw_only=True)
class ModelReplica:
    """A tablet's replica on the disk of a server."""

    data_state: ReportedDataState
    config: TabletConfig  #: The newest config that it knows to be committed.
    schema_version: int
    appended: OpId = ZERO  #: Op id of the newest config in its log that it does not know to be committed.

    @property
    def newest(self) -> OpId:
        """Op id of the newest config in its log."""
        return max(self.config.op_id, self.appended)


@dataclass(slots=True, kw_only=True)
class PendingConfig:
    """A config that is appended and not committed yet."""

    op_id: OpId
    members: tuple[Member, ...]


@dataclass(slots=True, kw_only=True)
class TabletGroup:
    """One tablet.

    Attributes:
        config: the committed config.
        pending: the config that is appended and not committed, if any.
        silent_since_us: the time since which a member has not responded, by member.
        removed_by: op id of the config that removed a former member, by member.
    """

    tablet_id: TabletId
    config: TabletConfig
    schema_version: int
    term: int = 0
    index: int = 0
    leader: NodeId | None = None
    pending: PendingConfig | None = None
    silent_since_us: dict[NodeId, int] = field(default_factory=dict)
    removed_by: dict[NodeId, OpId] = field(default_factory=dict)

    def members(self) -> set[NodeId]:
        """Return the members of the committed config and of a pending one."""
        pending = self.pending.members if self.pending is not None else ()
        return {member.node_id for member in (*self.config.members, *pending)}


class TabletGroups:
    """All tablets of a run.

    Args:
        replicas: returns the replicas of a server, which the groups may change; ``None`` if it is down or paused.
        changed: called with a server and a tablet whose replica has changed.
    """

    def __init__(
        self,
        world: MastersWorld,
        rng: random.Random,
        replicas: Callable[[NodeId], dict[TabletId, ModelReplica] | None],
        changed: Callable[[NodeId, TabletId], None],
    ) -> None:
        self._world = world
        self._rng = rng
        self._replicas = replicas
        self._changed = changed
        self.groups: dict[TabletId, TabletGroup] = {}

    def start(self) -> None:
        """Run one round of all groups, and schedule the next."""
        self._world.scheduler.after(ROUND_US, "groups", self.start)
        for group in self.groups.values():
            self._round(group)

    def created(self, node_id: NodeId, tablet_id: TabletId, config: TabletConfig, schema_version: int) -> None:
        """Record that an initial member of a tablet was created."""
        if tablet_id not in self.groups:
            self.groups[tablet_id] = TabletGroup(tablet_id=tablet_id, config=config, schema_version=schema_version)
        self._changed(node_id, tablet_id)

    def alter(self, tablet_id: TabletId, version: int) -> None:
        """Replicate a schema version as the leader. Its followers learn it in later rounds."""
        group = self.groups[tablet_id]
        group.schema_version = max(group.schema_version, version)
        self._propagate(group)

    def change(self, action: ChangeConfig) -> None:
        """Append a config as the leader. The fence of the action has passed already."""
        group = self.groups[action.tablet_id]
        others = tuple(m for m in group.config.members if m.node_id != action.member)
        if action.change is ConfigChange.REMOVE:
            if action.member == group.leader or not others:
                return
            self._append(group, others)
            return
        kind = action.member_type or MemberType.PRE_VOTER
        self._append(group, (*others, Member(node_id=action.member, address=action.address, member_type=kind)))

    def transfer(self, action: TransferLeadership) -> None:
        """Transfer leadership, if the other replica can lead."""
        group = self.groups[action.tablet_id]
        if self._ready(group, action.to):
            self._lead(group, action.to)

    def leads(self, node_id: NodeId, tablet_id: TabletId) -> bool:
        """Return true if a node's replica leads its tablet."""
        group = self.groups.get(tablet_id)
        return group is not None and group.leader == node_id

    # -- rounds ------------------------------------------------------------------------------------

    def _round(self, group: TabletGroup) -> None:
        self._update_silence(group)
        voters = group.config.voters()
        ready = [node_id for node_id in voters if self._ready(group, node_id)]
        if len(ready) <= len(voters) // 2:
            return
        if group.leader not in ready:
            if chance(self._rng, 0.6):
                self._lead(group, pick(self._rng, ready))
            return
        self._propagate(group)
        if group.pending is not None:
            self._append_pending(group, group.pending)
        self._start_copies(group)
        self._promote(group)

    def _update_silence(self, group: TabletGroup) -> None:
        now_us = self._world.scheduler.now_us
        for member in group.config.members:
            replicas = self._replicas(member.node_id)
            if (
                replicas is not None
                and group.tablet_id in replicas
                and replicas[group.tablet_id].data_state is ReportedDataState.READY
            ):
                group.silent_since_us.pop(member.node_id, None)
            else:
                group.silent_since_us.setdefault(member.node_id, now_us)

    def unhealthy(self, group: TabletGroup) -> tuple[NodeId, ...]:
        """Return the members that the leader reports as unhealthy."""
        limit_us = self._world.scheduler.now_us - FAILED_US
        return tuple(sorted(n for n, since_us in group.silent_since_us.items() if since_us <= limit_us))

    def _ready(self, group: TabletGroup, node_id: NodeId) -> bool:
        replicas = self._replicas(node_id)
        replica = None if replicas is None else replicas.get(group.tablet_id)
        return replica is not None and replica.data_state is ReportedDataState.READY

    def _lead(self, group: TabletGroup, node_id: NodeId) -> None:
        """Make a replica the leader. A pending config survives or is rolled back, and the leader commits an entry."""
        before, group.leader = group.leader, node_id
        group.term += 1
        group.index += 1
        if group.pending is not None and chance(self._rng, 0.5):
            self._world.coverage.hit("tablet.rolled_back")
            group.pending = None
        elif group.pending is not None:
            pending = group.pending
            self._after(COMMIT_US, "config", lambda: self._commit(group, pending))
        if group.config.op_id == ZERO:
            group.config = msgspec.structs.replace(group.config, op_id=OpId(group.term, group.index))
        if before is not None:
            self._changed(before, group.tablet_id)
        self._propagate(group)
        self._changed(node_id, group.tablet_id)

    def _append_pending(self, group: TabletGroup, pending: PendingConfig) -> None:
        """Append a pending config to the logs of some members."""
        for member in pending.members:
            replicas = self._replicas(member.node_id)
            replica = None if replicas is None else replicas.get(group.tablet_id)
            if replica is not None and replica.data_state is ReportedDataState.READY and chance(self._rng, 0.5):
                replica.appended = pending.op_id

    def _propagate(self, group: TabletGroup) -> None:
        """Send config and schema to all members that can receive them. Former members get nothing."""
        for member in group.config.members:
            replicas = self._replicas(member.node_id)
            replica = None if replicas is None else replicas.get(group.tablet_id)
            if replica is None or replica.data_state is not ReportedDataState.READY:
                continue
            if replica.config != group.config or replica.schema_version != group.schema_version:
                replica.config, replica.schema_version = group.config, group.schema_version
                self._changed(member.node_id, group.tablet_id)

    def _start_copies(self, group: TabletGroup) -> None:
        """Start copies of the tablet to members that have no replica (source "tablet copy")."""
        for node_id in sorted(group.members()):
            replicas = self._replicas(node_id)
            if replicas is None or (
                group.tablet_id in replicas and replicas[group.tablet_id].data_state is not ReportedDataState.DELETED
            ):
                continue
            replicas[group.tablet_id] = ModelReplica(
                data_state=ReportedDataState.COPYING,
                config=group.config,
                schema_version=group.schema_version,
                appended=ZERO if group.pending is None or chance(self._rng, 0.5) else group.pending.op_id,
            )
            self._world.coverage.hit("tablet.copied")
            self._changed(node_id, group.tablet_id)
            self._after(COPY_US, "copy", partial(self._copied, group, node_id))

    def _copied(self, group: TabletGroup, node_id: NodeId) -> None:
        replicas = self._replicas(node_id)
        if replicas is None:
            self._after(COPY_US, "copy", lambda: self._copied(group, node_id))
            return
        replica = replicas.get(group.tablet_id)
        if replica is not None and replica.data_state is ReportedDataState.COPYING:
            replica.data_state = ReportedDataState.READY
            if group.config.member(node_id) is None:
                self._world.coverage.hit("tablet.newcomer_of_pending")
            self._changed(node_id, group.tablet_id)

    def _promote(self, group: TabletGroup) -> None:
        """Promote new members that have caught up, and remove those that never respond."""
        for member in group.config.members:
            if member.member_type is not MemberType.PRE_VOTER or group.pending is not None:
                continue
            others = tuple(m for m in group.config.members if m.node_id != member.node_id)
            if self._ready(group, member.node_id):
                promoted = msgspec.structs.replace(member, member_type=MemberType.VOTER)
                self._append(group, (*others, promoted))
            elif self._world.scheduler.now_us - group.silent_since_us.get(member.node_id, 1 << 62) > GIVEN_UP_US:
                self._append(group, others)

    def _append(self, group: TabletGroup, members: tuple[Member, ...]) -> None:
        in_order = tuple(sorted(members, key=lambda member: member.node_id))
        group.index += between(self._rng, 1, 3)
        group.pending = pending = PendingConfig(op_id=OpId(group.term, group.index), members=in_order)
        if group.leader is not None:
            self._changed(group.leader, group.tablet_id)
        self._after(COMMIT_US, "config", lambda: self._commit(group, pending))

    def _commit(self, group: TabletGroup, pending: PendingConfig) -> None:
        if group.pending is not pending:
            return
        voters = [m.node_id for m in pending.members if m.member_type is MemberType.VOTER]
        ready = sum(self._ready(group, node_id) for node_id in voters)
        if group.leader is None or not self._ready(group, group.leader) or ready <= len(voters) // 2:
            self._after(COMMIT_US, "config", lambda: self._commit(group, pending))
            return
        group.pending = None
        before = group.config
        group.config = TabletConfig(op_id=pending.op_id, members=pending.members)
        group.removed_by |= {m.node_id: pending.op_id for m in before.members if group.config.member(m.node_id) is None}
        gone = set(group.silent_since_us) - {member.node_id for member in pending.members}
        for node_id in gone:
            del group.silent_since_us[node_id]
        self._world.coverage.hit("tablet.config_changed")
        self._propagate(group)
        self._changed(group.leader, group.tablet_id)

    def _after(self, bounds_us: tuple[int, int], label: str, action: Callable[[], None]) -> None:
        self._world.scheduler.after(skewed(self._rng, *bounds_us), label, action)
