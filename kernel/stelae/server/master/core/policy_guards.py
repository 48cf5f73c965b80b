"""Decides whether an action of a policy is allowed.

No policy can break these rules (``durability.md`` rules 28 and 30).

A tablet has one change at a time, by compare-and-set on its committed config. An eviction follows the report of the
tablet's leader, and leaves a majority of the new config healthy."""

from __future__ import annotations

import msgspec

from stelae.protocol.catalog_names import ServerMode, TabletState
from stelae.protocol.master_heartbeats import ReplicaStatus, ReportedDataState
from stelae.server.master.core.reconcile import ClusterView
from stelae.server.master.core.records import TabletRecord
from stelae.server.master.core.servers import Liveness
from stelae.spi import policy
from stelae.spi.ids import NodeId
from stelae.spi.members import VOTING, Member, MemberType, TabletConfig
from stelae.spi.policy import ActionKind, NodeHealth

_MODES = {ServerMode.RETIRING: NodeHealth.RETIRING, ServerMode.MAINTENANCE: NodeHealth.MAINTENANCE}


def health_of(view: ClusterView, node_id: NodeId) -> NodeHealth:
    """Return the health of a node for the policy.

    A node that is silent for a short time counts as in maintenance: it gets no replicas, and its replicas are not
    replaced yet."""
    liveness = view.servers.liveness(node_id, view.now_us)
    record = view.catalog.servers.get(node_id)
    mode = _MODES.get(record.mode) if record is not None else None
    if mode is NodeHealth.MAINTENANCE or liveness is Liveness.SILENT:
        return NodeHealth.MAINTENANCE
    if liveness is Liveness.DEAD:
        return NodeHealth.DEAD
    return mode or NodeHealth.LIVE


def is_healthy(
    view: ClusterView, tablet: TabletRecord, node_id: NodeId, leader: tuple[NodeId, ReplicaStatus] | None
) -> bool:
    """Return whether a member serves, by the leader's report, its own report, and its heartbeats to this master.

    A member on a silent server does not count. The leader reports it much later, and until then a good voter could be
    evicted while the one that does not serve stays."""
    if leader is not None and node_id in leader[1].unhealthy:
        return False
    if node_id in tablet.barred or view.servers.liveness(node_id, view.now_us) is not Liveness.LIVE:
        return False
    server = view.servers.get(node_id)
    status = None if server is None else server.replicas.get(tablet.tablet_id)
    if server is not None and server.complete and status is None:
        return False
    return status is None or status.data_state is ReportedDataState.READY


def is_coming(
    view: ClusterView, tablet: TabletRecord, member: Member, leader: tuple[NodeId, ReplicaStatus] | None
) -> bool:
    """Return whether the replica of a member is being created or copied, and makes progress.

    A new member has no replica at first, nor has a first member that is slow to create its own. It is expected until
    the tablet's leader has not heard from it for too long. Any other voter without a replica has lost it.

    A server that has not reported to this leading master yet is perhaps copying: the leader of a tablet does not hear
    a replica that is being copied."""
    server = view.servers.get(member.node_id)
    status = None if server is None else server.replicas.get(tablet.tablet_id)
    if member.node_id in tablet.barred:
        return False
    if status is not None:
        if is_healthy(view, tablet, member.node_id, leader):
            return False
        return view.servers.copy_advances(member.node_id, tablet.tablet_id, view.now_us)
    if view.servers.has_yet_to_report(member.node_id, view.now_us) and not is_healthy(
        view, tablet, member.node_id, leader
    ):
        return True
    lost = member.member_type in VOTING and not tablet.has_yet_to_begin(member.node_id)
    if lost or leader is None or member.node_id in leader[1].unhealthy:
        return False
    return view.servers.liveness(member.node_id, view.now_us) is not Liveness.DEAD


def refusal_of(view: ClusterView, action: policy.Action) -> str | None:
    """Return why an action of the policy is refused, or ``None``."""
    tablet = view.catalog.tablets.get(action.tablet_id)
    if tablet is None or tablet.state is not TabletState.RUNNING or tablet.config is None:
        return "the tablet does not run"
    if action.kind is ActionKind.PLACE:
        return "the tablet has its first members"
    leader = view.leader_of(action.tablet_id)
    if leader is None:
        return "no leader of the tablet is known"
    status = leader[1]
    if action.cas != tablet.config.op_id or status.config is None or status.config.op_id != action.cas:
        known = "none" if status.config is None else str(status.config.op_id)
        return f"planned for config {action.cas}; on record is {tablet.config.op_id}, its leader has {known}"
    if status.change_pending:
        return "another change of its config is pending"
    return _member_refusal(view, tablet, tablet.config, action)


def _member_refusal(view: ClusterView, tablet: TabletRecord, config: TabletConfig, action: policy.Action) -> str | None:
    member = config.member(action.node_id)
    if action.kind is ActionKind.ADD:
        return _addition_refusal(view, tablet, member, action)
    if member is None:
        return f"{action.node_id} is no member"
    if action.kind is ActionKind.TRANSFER:
        leader = view.leader_of(tablet.tablet_id)
        fit = member.member_type is MemberType.VOTER and is_healthy(view, tablet, action.node_id, leader)
        return None if fit else f"{action.node_id} is no healthy voter"
    others = tuple(m for m in config.members if m.node_id != action.node_id)
    if action.kind is ActionKind.REMOVE:
        after = others
    elif action.member_type is None or action.member_type is member.member_type:
        return f"{action.node_id} is {member.member_type} already"
    else:
        after = (*others, msgspec.structs.replace(member, member_type=action.member_type))
    refused = _majority_refusal(view, tablet, after) or _rows_refusal(view, tablet, member, after)
    return refused or _eviction_refusal(view, tablet, member, action)


def _addition_refusal(
    view: ClusterView, tablet: TabletRecord, member: Member | None, action: policy.Action
) -> str | None:
    if member is not None:
        return f"{action.node_id} is a member already"
    if action.node_id in tablet.barred:
        return f"{action.node_id} has lost its last op id: it never is a member again under that name"
    if health_of(view, action.node_id) is not NodeHealth.LIVE:
        return f"{action.node_id} is not live"
    if action.member_type not in (MemberType.PRE_VOTER, MemberType.NON_VOTER, None):
        return f"a member joins as PRE_VOTER or NON_VOTER, not as {action.member_type}"
    return None


def _majority_refusal(view: ClusterView, tablet: TabletRecord, members: tuple[Member, ...]) -> str | None:
    voters = [m.node_id for m in members if m.member_type in VOTING]
    leader = view.leader_of(tablet.tablet_id)
    healthy = sum(is_healthy(view, tablet, node_id, leader) for node_id in voters)
    if healthy > len(voters) // 2:
        return None
    return f"{healthy} of {len(voters)} voters would be healthy, which is no majority"


def _rows_refusal(view: ClusterView, tablet: TabletRecord, member: Member, after: tuple[Member, ...]) -> str | None:
    """A voter with rows stays while another voter has only the log, unless enough other voters have the rows.

    Such a voter may be down now and return with its rows. A majority that votes may not have the rows."""
    lacking = any(m.member_type in (MemberType.WITNESS, MemberType.PRE_WITNESS) for m in after)
    if member.member_type is not MemberType.VOTER or not lacking:
        return None
    voters = sum(m.member_type in VOTING for m in after)
    leader = view.leader_of(tablet.tablet_id)
    whole = [m for m in after if m.member_type is MemberType.VOTER and is_healthy(view, tablet, m.node_id, leader)]
    if len(whole) > voters // 2:
        return None
    return f"{len(whole)} of {voters} voters would be healthy and have the rows; wait until the witness has them"


def _eviction_refusal(view: ClusterView, tablet: TabletRecord, member: Member, action: policy.Action) -> str | None:
    """A member stays if only this master takes it for dead, because the tablet's leader may hear it.

    A voter whose replica is being copied stays, too. A new member may go, because it has nothing that others lack. But
    no member goes before its server has reported: its copy may be nearly complete."""
    leader = view.leader_of(tablet.tablet_id)
    if action.kind is not ActionKind.REMOVE or leader is None or is_healthy(view, tablet, action.node_id, leader):
        return None
    if is_coming(view, tablet, member, leader):
        votes = member.member_type in VOTING
        if view.servers.has_yet_to_report(action.node_id, view.now_us):
            return f"{action.node_id} has not reported its replicas to this master yet"
        return f"the replica on {action.node_id} is being copied, and gets on" if votes else None
    reported = action.node_id in leader[1].unhealthy or action.node_id in tablet.barred
    return None if reported else f"the leader does not report {action.node_id} as unhealthy"
