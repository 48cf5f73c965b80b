"""Asks every master, every tablet server and every replica how it is, and says what is wrong (``findings``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from stelae.check.cluster_state import Survey, survey
from stelae.check.findings import findings, server_problem
from stelae.check.health import TableHealth, TabletHealth, table_health, tablet_health
from stelae.check.replica_checksums import Comparison, compare
from stelae.check.setting_differences import Difference, Severity, differences, versions
from stelae.client.catalog import Catalog
from stelae.client.connection import Client
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.node_messages import QuarantineInfo
from stelae.spi.ids import NodeId, TabletId


class NodeHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One node; ``problem`` is empty if it answers and, of a tablet server, if the masters hear of it.

    ``version`` is empty if it does not say. ``silent_ms``: since the leader master heard of a tablet server."""

    node_id: NodeId
    address: str
    role: str
    version: str
    location: str = ""
    mode: str = ""
    silent_ms: int | None = None
    clock_ahead_ms: int | None = None  #: Of the clock of whoever asked.
    quarantine: QuarantineInfo | None = None
    problem: str = ""


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """All that was found. ``problems``: in words, one for each thing that is not as it should be; ``warnings``: what is
    worth knowing and leaves the cluster healthy."""

    masters: TabletHealth
    nodes: tuple[NodeHealth, ...]  #: Masters, then tablet servers.
    tables: tuple[TableHealth, ...]
    versions: Mapping[str, tuple[str, ...]]  #: Addresses by release.
    differences: tuple[Difference, ...]
    checksums: Mapping[TabletId, str]  #: Of tablets whose replicas were all compared and agree; empty unless asked for.
    differ: Mapping[TabletId, tuple[str, ...]] = {}  #: Checksums by replica, of tablets whose compared rows differ.
    not_compared: Mapping[TabletId, tuple[str, ...]] = {}  #: Replicas that were not compared, and why, by tablet.
    problems: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


async def check(
    connection: Client,
    catalog: Catalog,
    *,
    tables: Collection[str] | None = None,
    checksums: bool = False,
    timeout_s: float = 10.0,
    progress: Callable[[str], None] = lambda text: None,
) -> CheckReport:
    """Ask everybody.

    Args:
        connection: of the client that found the masters.
        catalog: the masters.
        tables: names of the tables to look at; ``None``: all. Nodes are looked at in any case.
        checksums: compare the rows of all replicas, too; reads every row of these tables.
        timeout_s: how long the masters are asked for what there is.
        progress: is told what is being done.

    Raises:
        Unavailable: no master answers at all. While none of them leads, that is a finding.
        NoTable: one of ``tables`` is not there.
    """
    found = await survey(connection, catalog, tables=tables, timeout_s=timeout_s, progress=progress)
    return await judge(connection, found, checksums=checksums, progress=progress)


async def judge(
    connection: Client, found: Survey, *, checksums: bool, progress: Callable[[str], None] = lambda text: None
) -> CheckReport:
    """Judge what was said; asks no more than for checksums."""
    own = tablet_health(SYSTEM_TABLET, found.masters, found.nodes)
    tables = [table_health(table, found.nodes) for table in found.tables]
    said = findings(found, own, tables)
    problems = [finding.text for finding in said if finding.severity is Severity.ERROR]
    compared: dict[TabletId, Comparison] = {}
    if checksums:
        for table in tables:
            progress(f"comparing the replicas of {table.name}")
            for tablet in table.tablets:
                found_here = compared[tablet.tablet_id] = await compare(connection, tablet)
                problems += _problems(table, tablet, found_here)
    infos = [facts.info for facts in found.nodes.values() if facts.info is not None]
    return CheckReport(
        masters=own,
        nodes=(*_masters(found), *_servers(found)),
        tables=tuple(tables),
        versions=versions(infos),
        differences=differences(infos),
        checksums={name: one.checksum for name, one in compared.items() if one.checksum},
        differ={name: one.differ for name, one in compared.items() if one.differ},
        not_compared={name: one.not_compared for name, one in compared.items() if one.not_compared},
        problems=tuple(problems),
        warnings=tuple(finding.text for finding in said if finding.severity is Severity.WARNING),
    )


def _problems(table: TableHealth, tablet: TabletHealth, found: Comparison) -> list[str]:
    """What is wrong with the rows of a tablet, in words: replicas that differ, and ones that were not compared."""
    name, problems = f"tablet {tablet.tablet_id} of {table.name}", []
    if found.differ:
        problems.append(f"{name}: rows differ: {'; '.join(found.differ)}")
    if found.not_compared:
        counts = f"{len(found.not_compared)} of {len(tablet.replicas)} replicas"
        problems.append(f"{name}: rows of {counts} were not compared: {'; '.join(found.not_compared)}")
    return problems


def _masters(found: Survey) -> list[NodeHealth]:
    return [_node(found, node_id, "master", found.nodes[node_id].problem) for node_id, _ in found.masters]


def _servers(found: Survey) -> list[NodeHealth]:
    healths = []
    for line in found.servers:
        health = _node(found, line.node_id, "tserver", server_problem(found, line.node_id))
        more = {"location": line.location, "mode": line.mode.value, "silent_ms": line.silent_ms}
        healths.append(msgspec.structs.replace(health, **more))
    return healths


def _node(found: Survey, node_id: NodeId, role: str, problem: str) -> NodeHealth:
    facts = found.nodes[node_id]
    return NodeHealth(
        node_id=node_id,
        address=facts.address,
        role=role,
        version="" if facts.info is None else facts.info.version,
        location="" if facts.info is None else facts.info.location,
        clock_ahead_ms=None if facts.info is None else facts.clock_ahead_ms,
        quarantine=facts.quarantine,
        problem=problem,
    )
