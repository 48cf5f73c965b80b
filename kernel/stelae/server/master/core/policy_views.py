"""The views of the cluster for the policy.

They are kept up to date for each tablet, so no plan begins with a full scan.

The view of a tablet depends on its record, its reports and the status of its nodes. A change of one of these marks the
view as stale (``touch``). Stale views are renewed before the next plan, some thousand in a step."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from stelae.protocol.catalog_names import TableState, TabletState
from stelae.protocol.master_heartbeats import ReplicaStatus
from stelae.server.master.core.policy_guards import health_of, is_coming, is_healthy
from stelae.server.master.core.reconcile import ClusterView
from stelae.server.master.core.records import TabletRecord
from stelae.server.master.core.servers import Liveness
from stelae.spi.consensus import Role
from stelae.spi.ids import ZERO, IncarnationId, NodeId, TabletId
from stelae.spi.members import VOTING, Member, TabletConfig
from stelae.spi.policy import NodeView, PolicySnapshot, ReplicaView, TabletView


class _NodeStatus(NamedTuple):
    """The status of a node on which the views of its tablets depend."""

    liveness: Liveness
    complete: bool
    has_yet_to_report: bool
    incarnation: IncarnationId


class PolicyViews:
    """The views of one leadership.

    Args:
        tablets: all tablets when it begins.
    """

    def __init__(self, tablets: Iterable[TabletId]) -> None:
        self._stale: dict[TabletId, None] = dict.fromkeys(tablets)
        self._views: dict[TabletId, TabletView] = {}
        self._on: dict[NodeId, dict[TabletId, None]] = {}
        self._statuses: dict[NodeId, _NodeStatus] = {}
        self._avoiding: dict[TabletId, tuple[NodeId, ...]] = {}  #: The nodes that a view shows as avoided.
        self._copying: dict[TabletId, tuple[NodeId, ...]] = {}  #: The members that a view shows as being copied.

    @property
    def is_fresh(self) -> bool:
        """Whether no view is stale."""
        return not self._stale

    def touch(self, tablets: Iterable[TabletId]) -> None:
        """Mark the views of these tablets as stale."""
        self._stale.update(dict.fromkeys(tablets))

    def refresh(self, view: ClusterView, count_max: int) -> None:
        """Renew at most ``count_max`` stale views. Views of nodes whose status has changed become stale first."""
        for node_id in sorted({*_known_nodes(view), *self._on}):
            status = _node_status(view, node_id)
            if self._statuses.get(node_id, status) != status:
                self.touch(self._on.get(node_id, ()))
            self._statuses[node_id] = status
        for tablet_id, nodes in self._copying.items():
            if not all(view.servers.copy_advances(node_id, tablet_id, view.now_us) for node_id in nodes):
                self._stale[tablet_id] = None
        for tablet_id, nodes in self._avoiding.items():
            if view.servers.avoided(tablet_id, view.now_us) != nodes:
                self._stale[tablet_id] = None
        for tablet_id in list(itertools.islice(self._stale, count_max)):
            del self._stale[tablet_id]
            self._renew(view, tablet_id)

    def snapshot(self, view: ClusterView) -> PolicySnapshot:
        """Return the cluster as it is now. The snapshot does not change later. Call it when ``is_fresh``."""
        nodes = {node_id: _node_view(view, node_id) for node_id in _known_nodes(view)}
        return PolicySnapshot(now_us=view.wall_us, nodes=nodes, tablets=dict(self._views))

    def _renew(self, view: ClusterView, tablet_id: TabletId) -> None:
        before = self._views.pop(tablet_id, None)
        self._copying.pop(tablet_id, None)
        self._avoiding.pop(tablet_id, None)
        for replica in before.replicas if before is not None else ():
            self._on[replica.node_id].pop(tablet_id, None)
        tablet = view.catalog.tablets.get(tablet_id)
        table = None if tablet is None else view.catalog.tables[tablet.table_id]
        if tablet is None or table is None:
            return
        new = tablet.state is TabletState.PREPARING and table.state is not TableState.SOFT_DELETED
        if new or tablet.state is TabletState.RUNNING:
            made = self._views[tablet_id] = _tablet_view(view, tablet, table.replication_factor)
            for replica in made.replicas:
                self._on.setdefault(replica.node_id, {})[tablet_id] = None
            members = [replica.node_id for replica in made.replicas]
            copying = [n for n in members if view.servers.copy_advances(n, tablet_id, view.now_us)]
            if copying:
                self._copying[tablet_id] = tuple(copying)
            if made.avoided:
                self._avoiding[tablet_id] = made.avoided


def _known_nodes(view: ClusterView) -> list[NodeId]:
    return sorted({*view.catalog.servers, *(server.node_id for server in view.servers)})


def _node_status(view: ClusterView, node_id: NodeId) -> _NodeStatus:
    liveness = view.servers.liveness(node_id, view.now_us)
    server = view.servers.get(node_id)
    awaited = view.servers.has_yet_to_report(node_id, view.now_us)
    if server is None:
        return _NodeStatus(liveness, False, awaited, IncarnationId(""))
    return _NodeStatus(liveness, server.complete, awaited, server.incarnation)


def _node_view(view: ClusterView, node_id: NodeId) -> NodeView:
    server, record = view.servers.get(node_id), view.catalog.servers.get(node_id)
    location = server.location if server is not None else record.location if record is not None else ""
    health = health_of(view, node_id)
    if server is None:
        return NodeView(node_id=node_id, health=health, location=location)
    load = server.load_ops_per_s
    return NodeView(
        node_id=node_id, health=health, location=location, free_bytes=server.free_bytes, load_ops_per_s=load
    )


def _tablet_view(view: ClusterView, tablet: TabletRecord, replication_factor: int) -> TabletView:
    config = tablet.config or TabletConfig(op_id=ZERO, members=())
    leader = view.leader_of(tablet.tablet_id)
    statuses = dict(view.servers.holding(tablet.tablet_id))
    replicas = tuple(
        ReplicaView(
            node_id=member.node_id,
            member_type=member.member_type,
            role=_role(member, leader, statuses.get(member.node_id)),
            healthy=is_healthy(view, tablet, member.node_id, leader),
            copying=is_coming(view, tablet, member, leader),
            pinned=member.pinned is True,
            replaces=None if member.replaces is msgspec.UNSET else member.replaces,
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
        barred=tablet.barred,
        avoided=view.servers.avoided(tablet.tablet_id, view.now_us),
    )


def _role(member: Member, leader: tuple[NodeId, ReplicaStatus] | None, status: ReplicaStatus | None) -> Role:
    if leader is not None and leader[0] == member.node_id:
        return Role.LEADER
    if status is not None and status.role is not Role.LEADER:
        return status.role
    return Role.FOLLOWER if member.member_type in VOTING else Role.LEARNER
