"""Between the reconciler and the policy: what the policy is shown, and what of its answer is carried out.

A policy decides where things go; whether they may is decided by ``stelae.server.master.objections``."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import msgspec

from stelae.client.master_names import TableState, TabletState
from stelae.server.master.actions import Action, ChangeConfig, ConfigChange, TransferLeadership
from stelae.server.master.heartbeats import ReplicaStatus
from stelae.server.master.mutations import move_tablet
from stelae.server.master.objections import health_of, is_healthy, objection
from stelae.server.master.reconcile import Plan, View
from stelae.server.master.records import TabletRecord
from stelae.server.master.states import TabletCause
from stelae.spi import policy
from stelae.spi.consensus import Member, MemberType, Role, TabletConfig
from stelae.spi.ids import ZERO, NodeId, TabletId
from stelae.spi.policy import ActionKind, NodeHealth, NodeView, PolicySnapshot, ReplicaView, TabletView

Planner = Callable[[PolicySnapshot, random.Random], tuple[policy.Action, ...]]
"""``MasterPolicy.plan`` with its config filled in."""

_VOTING = (MemberType.VOTER, MemberType.WITNESS)


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """An action of the policy that may not be, and why."""

    action: policy.Action
    reason: str


def repair(view: View, planner: Planner, rng: random.Random, plan: Plan) -> list[Refused]:
    """Ask the policy, add to ``plan`` what of its answer may be, and return the rest."""
    snapshot = policy_snapshot(view)
    proposed = planner(snapshot, rng)
    waiting = [t for t in snapshot.tablets if view.catalog.tablets[t].state is TabletState.PREPARING]
    chosen = _first_members(view, proposed, waiting)
    for _ in range(view.settings.replication_factor_max):
        # A policy may name one member at a time: it is asked again, and shown those that it has named.
        if all(len(nodes) >= snapshot.tablets[t].replication_factor for t, nodes in chosen.items()):
            break
        again = _first_members(view, planner(_with_members(snapshot, chosen), rng), waiting, chosen)
        if again == chosen:
            break
        chosen = again
    for tablet_id, nodes in chosen.items():
        if len(nodes) >= snapshot.tablets[tablet_id].replication_factor:
            _place(view, view.catalog.tablets[tablet_id], nodes, plan)
    return _carry_out(view, [action for action in proposed if action.tablet_id not in chosen], plan)


def policy_snapshot(view: View) -> PolicySnapshot:
    """Return the cluster as the policy sees it."""
    tables, tablets = view.catalog.tables, {}
    for table_id, mine in view.catalog.of_table.items():
        table = tables[table_id]
        for tablet_id in mine:
            tablet = view.catalog.tablets[tablet_id]
            new = tablet.state is TabletState.PREPARING and table.state is not TableState.SOFT_DELETED
            if new or tablet.state is TabletState.RUNNING:
                tablets[tablet_id] = _tablet_view(view, tablet, table.replication_factor)
    nodes = {node_id: _node_view(view, node_id) for node_id in _known_nodes(view)}
    return PolicySnapshot(now_us=view.wall_us, nodes=nodes, tablets=tablets)


def _known_nodes(view: View) -> list[NodeId]:
    return sorted({*view.catalog.servers, *(server.node_id for server in view.servers)})


def _node_view(view: View, node_id: NodeId) -> NodeView:
    server, record = view.servers.get(node_id), view.catalog.servers.get(node_id)
    location = server.location if server is not None else record.location if record is not None else ""
    health = health_of(view, node_id)
    if server is None:
        return NodeView(node_id=node_id, health=health, location=location)
    load = server.load_ops_per_s
    return NodeView(
        node_id=node_id, health=health, location=location, free_bytes=server.free_bytes, load_ops_per_s=load
    )


def _tablet_view(view: View, tablet: TabletRecord, replication_factor: int) -> TabletView:
    config = tablet.config or TabletConfig(op_id=ZERO, members=())
    leader = view.leader_of(tablet.tablet_id)
    statuses = dict(view.servers.holding(tablet.tablet_id))
    replicas = tuple(
        ReplicaView(
            node_id=member.node_id,
            member_type=member.member_type,
            role=_role(member, leader, statuses.get(member.node_id)),
            healthy=is_healthy(view, tablet, member.node_id, leader),
            size_bytes=0 if member.node_id not in statuses else statuses[member.node_id].size_bytes,
        )
        for member in config.members
    )
    return TabletView(
        tablet_id=tablet.tablet_id,
        replication_factor=replication_factor,
        config_op_id=config.op_id,
        replicas=replicas,
        change_pending=leader is not None and leader[1].change_pending,
    )


def _role(member: Member, leader: tuple[NodeId, ReplicaStatus] | None, status: ReplicaStatus | None) -> Role:
    if leader is not None and leader[0] == member.node_id:
        return Role.LEADER
    if status is not None and status.role is not Role.LEADER:
        return status.role
    return Role.FOLLOWER if member.member_type in _VOTING else Role.LEARNER


def _first_members(
    view: View,
    proposed: Iterable[policy.Action],
    waiting: Iterable[TabletId],
    before: dict[TabletId, tuple[NodeId, ...]] | None = None,
) -> dict[TabletId, tuple[NodeId, ...]]:
    """Return the nodes named for tablets without replicas, those named before first."""
    chosen: dict[TabletId, tuple[NodeId, ...]] = dict.fromkeys(waiting, ())
    chosen.update(before or {})
    for action in proposed:
        nodes = chosen.get(action.tablet_id)
        if nodes is None or action.kind not in (ActionKind.PLACE, ActionKind.ADD):
            continue
        table = view.catalog.tables[view.catalog.tablets[action.tablet_id].table_id]
        taken = action.node_id in nodes or health_of(view, action.node_id) is not NodeHealth.LIVE
        if not taken and len(nodes) < table.replication_factor:
            chosen[action.tablet_id] = (*nodes, action.node_id)
    return chosen


def _with_members(snapshot: PolicySnapshot, chosen: dict[TabletId, tuple[NodeId, ...]]) -> PolicySnapshot:
    tablets = dict(snapshot.tablets)
    for tablet_id, nodes in chosen.items():
        replicas = tuple(
            ReplicaView(node_id=node_id, member_type=MemberType.VOTER, role=Role.FOLLOWER, healthy=True)
            for node_id in nodes
        )
        tablets[tablet_id] = msgspec.structs.replace(tablets[tablet_id], replicas=replicas)
    return msgspec.structs.replace(snapshot, tablets=tablets)


def _place(view: View, tablet: TabletRecord, nodes: tuple[NodeId, ...], plan: Plan) -> None:
    members = tuple(Member(node_id=node_id, address=_address(view, node_id)) for node_id in sorted(nodes))
    moved = move_tablet(tablet, TabletCause.PLACED, view.wall_us)
    plan.change_tablet(msgspec.structs.replace(moved, config=TabletConfig(op_id=ZERO, members=members)))


def _address(view: View, node_id: NodeId) -> str:
    server = view.servers.get(node_id)
    return "" if server is None else server.address


def _carry_out(view: View, proposed: Iterable[policy.Action], plan: Plan) -> list[Refused]:
    refused, touched = [], set()
    for action in proposed:
        reason = "another action on this tablet comes first" if action.tablet_id in touched else objection(view, action)
        if reason is not None:
            refused.append(Refused(action=action, reason=reason))
            continue
        touched.add(action.tablet_id)
        plan.actions.append(_as_action(view, action))
    return refused


def _as_action(view: View, action: policy.Action) -> Action:
    leader = view.leader_of(action.tablet_id)
    assert leader is not None
    if action.kind is ActionKind.TRANSFER:
        return TransferLeadership(node_id=leader[0], tablet_id=action.tablet_id, to=action.node_id, cas=action.cas)
    adding = action.kind is ActionKind.ADD
    return ChangeConfig(
        node_id=leader[0],
        tablet_id=action.tablet_id,
        change=ConfigChange(action.kind.value),
        member=action.node_id,
        address=_address(view, action.node_id) if adding else "",
        member_type=(action.member_type or MemberType.PRE_VOTER) if adding else action.member_type,
        cas=action.cas,
    )
