"""Checks the health of a cluster: asks every master, tablet server and replica, and reports the problems.

The nodes answer one after the other. If a leader changes between two answers, they contradict each other although the
cluster is well, so they are asked again before that is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

import msgspec

from stelae.check.cluster_state import ClusterState, collect_state
from stelae.check.findings import findings, server_problem
from stelae.check.health import TableHealth, TabletHealth, table_health, tablet_health
from stelae.check.replica_checksums import Comparison, compare
from stelae.check.setting_differences import Difference, Severity, differences, versions
from stelae.client.catalog import CatalogClient
from stelae.client.connection import Connection
from stelae.client.counted import counted
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.node_messages import QuarantineInfo
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import TabletConfig

LOOKS_MAX = 3
"""How often the nodes are asked at most while their answers contradict each other. The last answers count."""

PAUSE_S = 1.0
"""Seconds between two of these looks: an election, and the news of a config on its way to the masters, take less."""


class NodeCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The health of one node."""

    node_id: NodeId
    address: str
    role: str
    version: str  #: Release of the node; empty if the node does not report it.
    location: str = ""
    mode: str = ""
    silent_ms: int | None = None  #: Time since the last heartbeat of a tablet server to the leader master.
    clock_ahead_ms: int | None = None  #: How far its clock is ahead of the clock of this process.
    clock_error_ms: int | None = None  #: How far ``clock_ahead_ms`` may be off: the time that the question took.
    quarantine: QuarantineInfo | None = None
    problem: str = ""  #: Why the node does not answer, or why the masters do not hear it; empty if it is well.


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check."""

    masters: TabletHealth
    masters_config: TabletConfig | None = None  #: The newest committed config of the masters that any node knows.
    nodes: tuple[NodeCheck, ...]  #: Masters, then tablet servers.
    tables: tuple[TableHealth, ...]
    versions: Mapping[str, tuple[str, ...]]  #: Addresses of the nodes of each release.
    differences: tuple[Difference, ...]
    checksums: Mapping[TabletId, str]  #: Checksum of each tablet whose replicas were all compared and are equal.
    differ: Mapping[TabletId, tuple[str, ...]] = {}  #: For each tablet whose rows differ, the checksum of each replica.
    not_compared: Mapping[TabletId, tuple[str, ...]] = {}  #: For each tablet, the replicas without a checksum, and why.
    problems: tuple[str, ...]  #: One sentence for each problem. Any problem makes the cluster unhealthy.
    warnings: tuple[str, ...]  #: One sentence for each warning. Warnings leave the cluster healthy.

    @property
    def healthy(self) -> bool:
        """Whether the check found no problem."""
        return not self.problems


async def check(
    connection: Connection,
    catalog: CatalogClient,
    *,
    tables: Collection[str] | None = None,
    checksums: bool = False,
    timeout_s: float = 10.0,
    progress: Callable[[str], None] = lambda text: None,
) -> CheckReport:
    """Check a cluster.

    Args:
        connection: the connection of the client that found the masters.
        catalog: the masters' catalog.
        tables: names of the tables to check; ``None``: all. All nodes are checked in any case.
        checksums: also compare the rows of all replicas. This reads every row of these tables.
        timeout_s: how long to ask the masters for the tables and servers.
        progress: called with a description of each step.

    Raises:
        Unavailable: no master answers. If masters answer but none leads, the report says so instead.
        NoTable: one of ``tables`` does not exist.
    """
    state = await collect_state(connection, catalog, tables=tables, timeout_s=timeout_s, progress=progress)
    for _ in range(LOOKS_MAX - 1):
        if not (count := _contradictions(state)):
            break
        progress(f"asking again: the answers about {counted(count, 'tablet')} contradict each other")
        await asyncio.sleep(PAUSE_S)
        state = await collect_state(connection, catalog, tables=tables, timeout_s=timeout_s, progress=progress)
    return await judge(connection, state, checksums=checksums, progress=progress)


def _contradictions(state: ClusterState) -> int:
    """Return how many tablets may seem ill only because their members answered at different moments."""
    tablets = [tablet for table in state.tables for tablet in table_health(table, state.nodes).tablets]
    tablets.append(tablet_health(SYSTEM_TABLET, state.masters, state.nodes))
    return sum(tablet.contradictory for tablet in tablets)


async def judge(
    connection: Connection, state: ClusterState, *, checksums: bool, progress: Callable[[str], None] = lambda text: None
) -> CheckReport:
    """Make the report for a cluster state. Only checksums need further requests."""
    masters = tablet_health(SYSTEM_TABLET, state.masters, state.nodes)
    tables = [table_health(table, state.nodes) for table in state.tables]
    found = findings(state, masters, tables)
    problems = [finding.text for finding in found if finding.severity is Severity.ERROR]
    compared: dict[TabletId, Comparison] = {}
    if checksums:
        for table in tables:
            progress(f"comparing the replicas of {table.name}")
            for tablet in table.tablets:
                comparison = compared[tablet.tablet_id] = await compare(connection, tablet)
                problems += _problems(table, tablet, comparison)
    infos = [facts.info for facts in state.nodes.values() if facts.info is not None]
    return CheckReport(
        masters=masters,
        masters_config=state.masters_config,
        nodes=(*_masters(state), *_servers(state)),
        tables=tuple(tables),
        versions=versions(infos),
        differences=differences(infos),
        checksums={name: one.checksum for name, one in compared.items() if one.checksum},
        differ={name: one.differ for name, one in compared.items() if one.differ},
        not_compared={name: one.not_compared for name, one in compared.items() if one.not_compared},
        problems=tuple(problems),
        warnings=tuple(finding.text for finding in found if finding.severity is Severity.WARNING),
    )


def _problems(table: TableHealth, tablet: TabletHealth, comparison: Comparison) -> list[str]:
    """Return the problems with the rows of a tablet: replicas that differ, and replicas without a checksum."""
    name, problems = f"tablet {tablet.tablet_id} of {table.name}", []
    if comparison.differ:
        problems.append(f"{name}: rows differ: {'; '.join(comparison.differ)}")
    if comparison.not_compared:
        counts = f"{len(comparison.not_compared)} of {len(tablet.replicas)} replicas"
        problems.append(f"{name}: rows of {counts} were not compared: {'; '.join(comparison.not_compared)}")
    return problems


def _masters(state: ClusterState) -> list[NodeCheck]:
    return [_node(state, node_id, "master", state.nodes[node_id].problem) for node_id, _ in state.masters]


def _servers(state: ClusterState) -> list[NodeCheck]:
    healths = []
    for line in state.servers:
        health = _node(state, line.node_id, "tserver", server_problem(state, line.node_id))
        more = {"location": line.location, "mode": line.mode.value, "silent_ms": line.silent_ms}
        healths.append(msgspec.structs.replace(health, **more))
    return healths


def _node(state: ClusterState, node_id: NodeId, role: str, problem: str) -> NodeCheck:
    facts = state.nodes[node_id]
    return NodeCheck(
        node_id=node_id,
        address=facts.address,
        role=role,
        version="" if facts.info is None else facts.info.version,
        location="" if facts.info is None else facts.info.location,
        clock_ahead_ms=None if facts.info is None else facts.clock_ahead_ms,
        clock_error_ms=None if facts.info is None else facts.clock_error_ms,
        quarantine=facts.quarantine,
        problem=problem,
    )
