"""Answers to questions about the catalog, each from one snapshot."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import assert_never

from stelae.protocol.catalog_names import TableState, TabletState
from stelae.protocol.master_messages import (
    POLICY_TABLETS_MAX,
    AreCurrent,
    CatalogAnswer,
    Currency,
    GetPolicyPart,
    GetTable,
    ListServers,
    ListTables,
    PolicyPart,
    Question,
    ServerLine,
    ServerList,
    TableDescription,
    TableList,
    TableSummary,
    TabletPlace,
    tablets_digest,
)
from stelae.server.master.core.ddl import find_table
from stelae.server.master.core.mutations import partitions_of
from stelae.server.master.core.policy_views import PolicyViews
from stelae.server.master.core.reconcile import ClusterView
from stelae.server.master.core.records import TableRecord, TabletRecord
from stelae.spi.ids import NodeId, TabletId


def answer(view: ClusterView, question: Question) -> CatalogAnswer:
    """Return the answer as of ``view``. Raises ``NoTable`` if no table has the name."""
    match question:
        case ListTables():
            return _tables(view, question)
        case GetTable():
            return _describe(view, find_table(view.catalog, question.table))
        case AreCurrent():
            return _are_current(view, question)
        case ListServers():
            return _servers(view)
        case GetPolicyPart():
            return _policy_part(view, question.after)
        case _:
            assert_never(question)


def _policy_part(view: ClusterView, after: TabletId) -> PolicyPart:
    """Make the views for this answer. Those for plans belong to the leadership."""
    live = (t for tablets in view.catalog.of_table.values() for t in tablets if t > after)
    first = heapq.nsmallest(POLICY_TABLETS_MAX + 1, live)
    views = PolicyViews(first[:POLICY_TABLETS_MAX])
    views.refresh(view, POLICY_TABLETS_MAX)
    return PolicyPart(snapshot=views.snapshot(view), more=len(first) > POLICY_TABLETS_MAX)


def _tables(view: ClusterView, question: ListTables) -> TableList:
    shown = {TableState.RUNNING, TableState.ALTERING}
    if question.soft_deleted:
        shown.add(TableState.SOFT_DELETED)
    found = sorted((t for t in view.catalog.tables.values() if t.state in shown), key=lambda t: (t.name, t.table_id))
    return TableList(tables=tuple(TableSummary(table_id=t.table_id, name=t.name, state=t.state) for t in found))


def _describe(view: ClusterView, table: TableRecord) -> TableDescription:
    by_partition = {tablet.partition: tablet for tablet in view.catalog.live_tablets(table.table_id)}
    partitions = partitions_of(table.newest, table.partitioning)
    addresses = {server.node_id: server.address for server in view.servers}
    return TableDescription(
        table_id=table.table_id,
        name=table.name,
        state=table.state,
        schema=table.visible.to_bytes(),
        partition_schema=table.partition_schema,
        replication_factor=table.replication_factor,
        tablets=tuple(_place(view, by_partition[partition], addresses) for partition in partitions),
    )


def _are_current(view: ClusterView, question: AreCurrent) -> Currency:
    table = find_table(view.catalog, question.table)
    tablets = view.catalog.live_tablets(table.table_id)
    unfinished = {tablet.partition.range for tablet in tablets if tablet.state is not TabletState.RUNNING}
    serving = (tablet.tablet_id for tablet in tablets if tablet.partition.range not in unfinished)
    return Currency(current=tablets_digest(serving) == question.digest)


def _place(view: ClusterView, tablet: TabletRecord, addresses: Mapping[NodeId, str]) -> TabletPlace:
    """Return the location of a tablet.

    Its members are those on record, so they are known before the first report (KUDU-1353). A report adds the leader.

    A tablet that is being created has no members here: it may be replaced, and must not be written to."""
    if tablet.state is not TabletState.RUNNING or tablet.config is None:
        waits = _waits_for(view, tablet)
        return TabletPlace(tablet_id=tablet.tablet_id, state=tablet.state, partition=tablet.partition, waits_for=waits)
    leader = view.leader_of(tablet.tablet_id)
    return TabletPlace(
        tablet_id=tablet.tablet_id,
        state=tablet.state,
        partition=tablet.partition,
        members=tuple((m.node_id, addresses.get(m.node_id) or m.address) for m in tablet.config.members),
        learners=tablet.config.learners(),
        leader=None if leader is None else leader[0],
        config=tablet.config.op_id,
    )


def _waits_for(view: ClusterView, tablet: TabletRecord) -> str:
    """Return what a tablet that is being created waits for."""
    table = view.catalog.tables[tablet.table_id]
    if tablet.config is None:
        live, wanted = view.servers.live_count(view.now_us), table.replication_factor
        enough = "" if live >= wanted else f"; {live} are live: start {wanted - live} more, or drop the table"
        return f"{wanted} live tablet servers to be placed on{enough}"
    holders = {node_id for node_id, _ in view.servers.holding(tablet.tablet_id)}
    lacking = [member for member in tablet.config.members if member.node_id not in holders]
    if not lacking:
        return "its replicas to elect a leader"
    named = ", ".join(f"{m.address} ({view.servers.liveness(m.node_id, view.now_us)})" for m in lacking)
    return f"replicas on {named}; other servers are chosen after create_timeout_ms"


def _servers(view: ClusterView) -> ServerList:
    lines = []
    for node_id, record in sorted(view.catalog.servers.items()):
        server = view.servers.get(node_id)
        silent_ms = None if server is None else (view.now_us - server.heard_us) // 1000
        line = ServerLine(
            node_id=node_id, address=record.address, location=record.location, mode=record.mode, silent_ms=silent_ms
        )
        lines.append(line)
    return ServerList(servers=tuple(lines))
