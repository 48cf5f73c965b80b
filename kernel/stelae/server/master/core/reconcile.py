"""The reconciler: derives changes of the catalog and actions of servers from catalog, reports, liveness and time.

It is a pure function of the state, not of events. So it finds again what a lost message or a dead leader left undone
(source, *Operations triggered by heartbeats may go unperformed*). It yields *transitions*, which become batches like
every change, and *actions*, which are idempotent and carry their fences. Actions depend on the applied snapshot
alone, and not on batches in flight.

A tablet that the catalog does not know is not touched, because it may belong to another cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from stelae.partition.tablet_partition import tablet_scheme
from stelae.protocol.actions import (
    AlterSchema,
    CreateReplica,
    DeleteReplica,
    Evicted,
    ServerAction,
    Terminal,
    Unreadable,
)
from stelae.protocol.catalog_names import TableState, TabletState
from stelae.protocol.master_heartbeats import ReplicaStatus, ReportedDataState
from stelae.server.master.core.batches import CatalogBatch
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.locks import LockRequest
from stelae.server.master.core.mutations import move_table, move_tablet, table_lock, tablet_lock
from stelae.server.master.core.records import TableRecord, TabletRecord
from stelae.server.master.core.servers import Liveness, Servers
from stelae.server.master.core.states import TableCause, TabletCause
from stelae.server.master.settings import MasterSettings
from stelae.spi.consensus import Role
from stelae.spi.ids import ZERO, NodeId, TabletId
from stelae.spi.members import TabletConfig

PATIENCE_DOUBLINGS_MAX = 4
"""How often the timeout of a tablet's first election is doubled, at most."""


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of reconciling."""

    catalog: Catalog
    servers: Servers
    settings: MasterSettings
    now_us: int  #: By the clock that measures when servers were heard.
    wall_us: int  #: By the clock whose times are in the catalog.

    def leader_of(self, tablet_id: TabletId) -> tuple[NodeId, ReplicaStatus] | None:
        """Return the reported leader of the latest term, if its server is not dead."""
        leading = [
            (status.term, node_id, status)
            for node_id, status in self.servers.holding(tablet_id)
            if status.role is Role.LEADER and self.servers.liveness(node_id, self.now_us) is not Liveness.DEAD
        ]
        return max(leading, key=lambda one: one[:2])[1:] if leading else None


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """Records to put, or keys to drop, all together or not at all, with the locks that they need."""

    batch: CatalogBatch
    locks: LockRequest


class ReconcilePlan:
    """The results of reconciling, in order."""

    def __init__(self) -> None:
        self.transitions: list[Transition] = []
        self.actions: list[ServerAction] = []
        self.strangers: list[TabletId] = []  #: Tablets that are reported, and not on record.

    def change_tablet(self, *puts: TabletRecord) -> None:
        """Add a transition that puts tablets of one table. The table must not change meanwhile."""
        locks = LockRequest(
            write=tuple(tablet_lock(record.tablet_id) for record in puts), read=(table_lock(puts[0].table_id),)
        )
        self.transitions.append(Transition(batch=CatalogBatch(puts=puts), locks=locks))


def reconcile(view: ClusterView, tablets: Iterable[TabletId]) -> ReconcilePlan:
    """Return the plan for tablets whose record or reports have changed.

    They may have been removed: their deletion does not wait for a report."""
    plan = ReconcilePlan()
    for tablet_id in tablets:
        tablet = view.catalog.tablets.get(tablet_id)
        if tablet is not None and not tablet.terminal:
            _live_tablet(view, view.catalog.tables[tablet.table_id], tablet, plan)
        else:
            _reported(view, tablet_id, plan)
            if tablet is not None:
                _delete_unreported(view, tablet, plan)
    return plan


def scan(view: ClusterView, tablets: Iterable[TabletId]) -> ReconcilePlan:
    """Return the plan for tablets that are on record, or that a server holds, or both."""
    plan = ReconcilePlan()
    for tablet_id in tablets:
        tablet = view.catalog.tablets.get(tablet_id)
        if tablet is not None and not tablet.terminal:
            _live_tablet(view, view.catalog.tables[tablet.table_id], tablet, plan)
        else:
            _reported(view, tablet_id, plan)
    return plan


def settle(view: ClusterView, table: TableRecord) -> Transition | None:
    """Return the transition that ends a table's alteration, if all of its tablets have the newest schema."""
    if table.state is not TableState.ALTERING:
        return None
    version = table.newest.version
    for tablet in view.catalog.live_tablets(table.table_id):
        leader = view.leader_of(tablet.tablet_id)
        if tablet.state is not TabletState.RUNNING or leader is None or leader[1].schema_version < version:
            return None
    moved = move_table(table, TableCause.SETTLED, view.wall_us)
    after = msgspec.structs.replace(moved, fully_applied=None)
    return Transition(batch=CatalogBatch(puts=(after,)), locks=LockRequest(write=(table_lock(table.table_id),)))


def _reported(view: ClusterView, tablet_id: TabletId, plan: ReconcilePlan) -> None:
    """Plan the deletion of a tablet that is not live in the catalog. A server may hold it."""
    tablet = view.catalog.tablets.get(tablet_id)
    if tablet is None:
        plan.strangers.append(tablet_id)
    elif tablet.terminal:
        for node_id, _ in view.servers.holding(tablet_id):
            plan.actions.append(_deletion(tablet, node_id))


def _delete_unreported(view: ClusterView, tablet: TabletRecord, plan: ReconcilePlan) -> None:
    """Plan the deletion on members whose server has not sent a full report yet (KUDU-1353, third consequence)."""
    holders = {node_id for node_id, _ in view.servers.holding(tablet.tablet_id)}
    for member in tablet.config.members if tablet.config is not None else ():
        server = view.servers.get(member.node_id)
        if member.node_id not in holders and (server is None or not server.complete):
            plan.actions.append(_deletion(tablet, member.node_id))


def _deletion(tablet: TabletRecord, node_id: NodeId) -> ServerAction:
    return DeleteReplica(node_id=node_id, tablet_id=tablet.tablet_id, fence=Terminal(state=tablet.state))


def _live_tablet(view: ClusterView, table: TableRecord, tablet: TabletRecord, plan: ReconcilePlan) -> None:
    if tablet.state is TabletState.CREATING:
        _creating(view, table, tablet, plan)
    elif tablet.state is TabletState.RUNNING:
        _running(view, table, tablet, plan)


def _creating(view: ClusterView, table: TableRecord, tablet: TabletRecord, plan: ReconcilePlan) -> None:
    """If a leader has reported, set the tablet RUNNING.

    After the timeout, replace it. Otherwise ask members without a replica again to create one. A new leader first hears
    whether the tablet has elected a leader meanwhile."""
    assert tablet.config is not None
    newest = _newest_config(view, tablet)
    if newest.op_id > ZERO or view.leader_of(tablet.tablet_id) is not None:
        moved = move_tablet(tablet, TabletCause.ELECTED, view.wall_us)
        plan.change_tablet(msgspec.structs.replace(moved, config=newest, begun=_begun(view, tablet)))
    elif table.state is TableState.SOFT_DELETED:
        return
    elif view.wall_us - tablet.since_us > _patience_us(view, tablet, tablet.config) and _have_told(view, tablet.config):
        plan.change_tablet(*_replaced(view, tablet))
    else:
        plan.actions += _creations(view, table, tablet, tablet.config)


def _have_told(view: ClusterView, config: TabletConfig) -> bool:
    """Return whether the servers of all members have sent a full report, except those that are not heard any more."""
    servers = [view.servers.get(member.node_id) for member in config.members]
    untold = [server.node_id for server in servers if server is not None and not server.complete]
    heard = view.servers.is_warm(view.now_us) or all(server is not None for server in servers)
    return heard and not any(view.servers.liveness(node, view.now_us) is Liveness.LIVE for node in untold)


def _patience_us(view: ClusterView, tablet: TabletRecord, config: TabletConfig) -> int:
    """Return how long a tablet may take to elect its first leader before it is replaced.

    A replacement has to create all replicas again, so it would load busy servers even more. So the time doubles with
    each replacement. It is four times as long if every member has its replica and only the election is missing."""
    doublings = min(_generation(tablet.tablet_id), PATIENCE_DOUBLINGS_MAX)
    ready = {
        node for node, status in view.servers.holding(tablet.tablet_id) if status.data_state is ReportedDataState.READY
    }
    if all(member.node_id in ready for member in config.members):
        doublings += 2
    return view.settings.create_timeout_ms * 1000 << doublings


def _creations(
    view: ClusterView, table: TableRecord, tablet: TabletRecord, config: TabletConfig
) -> Iterator[CreateReplica]:
    """Ask the members that have not reported a replica to create one.

    The fence refuses on a node that had a replica before: an empty one could vote against entries that the old one
    had."""
    holders = {node_id for node_id, _ in view.servers.holding(tablet.tablet_id)}
    for member in config.members:
        if member.node_id not in holders:
            yield CreateReplica(
                node_id=member.node_id,
                tablet_id=tablet.tablet_id,
                table_id=table.table_id,
                config=msgspec.structs.replace(config, op_id=ZERO),
                schema=table.schema_of(tablet),
                partition=tablet.partition,
                consensus=table.consensus,
                scheme=tablet_scheme(table.partitioning, tablet.partition),
            )


def _late_creations(
    view: ClusterView, table: TableRecord, tablet: TabletRecord, config: TabletConfig
) -> Iterator[CreateReplica]:
    """Ask first members that missed the request, while the others elected a leader, to create their replica.

    Only servers that have sent a full report are asked, because one that starts may have the replica."""
    for action in _creations(view, table, tablet, config):
        server = view.servers.get(action.node_id)
        if server is not None and server.complete and tablet.has_yet_to_begin(action.node_id):
            yield action


def _replaced(view: ClusterView, tablet: TabletRecord) -> tuple[TabletRecord, TabletRecord]:
    """Return the replaced tablet and the new one.

    They are in one batch, so each partition has one tablet in every snapshot.

    The new id is a function of the old one, so planning it again before the batch is applied gives the same id."""
    new_id = TabletId(f"{tablet.tablet_id[:32]}-{_generation(tablet.tablet_id) + 1}")
    fresh = TabletRecord(
        tablet_id=new_id,
        table_id=tablet.table_id,
        state=TabletState.PREPARING,
        partition=tablet.partition,
        since_us=view.wall_us,
        first_schema=tablet.first_schema,
    )
    moved = move_tablet(tablet, TabletCause.TIMED_OUT, view.wall_us)
    return msgspec.structs.replace(moved, replaced_by=new_id), fresh


def _generation(tablet_id: TabletId) -> int:
    _, dash, number = tablet_id.partition("-")
    return int(number) if dash else 0


def _running(view: ClusterView, table: TableRecord, tablet: TabletRecord, plan: ReconcilePlan) -> None:
    assert tablet.config is not None
    newest = _newest_config(view, tablet)
    barred = _barred(view, tablet)
    begun = _begun(view, tablet)
    if newest.op_id > tablet.config.op_id or barred != tablet.barred or begun != tablet.begun:
        moved = move_tablet(tablet, TabletCause.REPORTED, view.wall_us)
        plan.change_tablet(msgspec.structs.replace(moved, config=newest, barred=barred, begun=begun))
    _evict(view, tablet, tablet.config, plan)
    if table.state is not TableState.SOFT_DELETED:
        _alter(view, table, tablet, tablet.config, plan)
        plan.actions += _late_creations(view, table, tablet, tablet.config)


def _newest_config(view: ClusterView, tablet: TabletRecord) -> TabletConfig:
    """Return the committed config with the highest op id, on record or in the report of any server."""
    known = [status.config for _, status in view.servers.holding(tablet.tablet_id) if status.config is not None]
    assert tablet.config is not None
    return max((tablet.config, *known), key=lambda config: config.op_id)


def _barred(view: ClusterView, tablet: TabletRecord) -> tuple[NodeId, ...]:
    lost = [node_id for node_id, status in view.servers.holding(tablet.tablet_id) if status.op_id_lost]
    gone = view.servers.missing(tablet.tablet_id).intersection(tablet.begun)
    return tuple(sorted({*tablet.barred, *lost, *gone}))


def _begun(view: ClusterView, tablet: TabletRecord) -> tuple[NodeId, ...]:
    """Return the nodes that have reported a replica. Once the first config is replaced, no other ones matter."""
    if not tablet.has_first_config:
        return tablet.begun
    reported = [node_id for node_id, _ in view.servers.holding(tablet.tablet_id)]
    return tuple(sorted({*tablet.begun, *reported}))


def _evict(view: ClusterView, tablet: TabletRecord, config: TabletConfig, plan: ReconcilePlan) -> None:
    """Delete replicas of former members, by compare-and-set. They leave a tombstone.

    A replica that knows the config on record and is not in it is not deleted: it belongs to a new member whose
    change is not committed yet. A removed replica never learns the config without it, because no leader sends it
    that config.

    A replica whose config cannot be read is deleted once the record bars its node from the tablet: then no pending
    change adds it."""
    for node_id, status in view.servers.holding(tablet.tablet_id):
        if config.member(node_id) is not None or status.data_state is ReportedDataState.COPYING:
            continue
        fence: Evicted | Unreadable
        if status.config is not None and status.config.op_id < config.op_id:
            fence = Evicted(config_op_id=config.op_id, seen=status.config.op_id)
        elif status.config is None and status.op_id_lost and node_id in tablet.barred:
            fence = Unreadable(config_op_id=config.op_id)
        else:
            continue
        plan.actions.append(DeleteReplica(node_id=node_id, tablet_id=tablet.tablet_id, fence=fence))


def _alter(
    view: ClusterView, table: TableRecord, tablet: TabletRecord, config: TabletConfig, plan: ReconcilePlan
) -> None:
    """Send the newest schema to the leader, or to every member on record if no leader is reported (KUDU-1353)."""
    version = table.newest.version
    leader = view.leader_of(tablet.tablet_id)
    if leader is not None:
        targets = [leader[0]] if leader[1].schema_version < version else []
    else:
        targets = [m.node_id for m in config.members] if table.state is TableState.ALTERING else []
    for node_id in targets:
        plan.actions.append(
            AlterSchema(node_id=node_id, tablet_id=tablet.tablet_id, version=version, schema=table.schema)
        )
