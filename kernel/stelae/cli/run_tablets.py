"""Carries out ``stelae tablet list`` and ``describe``."""

from __future__ import annotations

import asyncio
from typing import Any

from stelae.check.cluster_state import ClusterState, collect_state
from stelae.check.fault_tolerance import tolerance_text
from stelae.check.health import ReplicaHealth, TabletHealth, table_health
from stelae.cli.kit.errors import EXIT_OK
from stelae.cli.kit.name_lookup import pick, shorten
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.table_lookup import describe_table
from stelae.cli.kit.terminal_layout import age_text, bytes_text, print_facts, print_fitted
from stelae.cli.masters_target import MastersTarget
from stelae.cli.table_text import partition_text
from stelae.client.connection import Connection
from stelae.protocol.master_messages import ServerLine, TableDescription, TabletPlace
from stelae.spi.errors import Unavailable
from stelae.spi.ids import NodeId
from stelae.spi.members import MemberType
from stelae.spi.scan import ScanSpec

LIST = "stelae tablet list"


def run_list(cluster: MastersTarget, table: str, *, as_json: bool) -> int:
    """Print the tablets of all tables, or of one table, and return the exit code."""

    async def run() -> list[dict[str, Any]]:
        async with cluster.masters() as (client, catalog):
            asked = [(await describe_table(catalog, table, cluster.timeout_s)).table_id] if table else None
            found = await collect_state(client.connection, catalog, tables=asked, timeout_s=cluster.timeout_s)
            return _plain_tablets(found)

    tablets = asyncio.run(run())
    if as_json:
        print_json({"tablets": tablets})
        return EXIT_OK
    short = shorten(tablet["tablet_id"] for tablet in tablets)
    rows = [
        (
            short[tablet["tablet_id"]],
            tablet["table"],
            tablet["health"],
            tablet["leader"] or "-",
            f"{sum(not r['problem'] for r in tablet['replicas'])}/{len(tablet['replicas'])}",
            bytes_text(tablet["size_bytes"]),
        )
        for tablet in tablets
    ]
    print_fitted(("TABLET", "TABLE", "HEALTH", "LEADER", "RUN", "SIZE"), rows)
    return EXIT_OK


def run_describe(cluster: MastersTarget, tablet: str, *, count_rows: bool, as_json: bool) -> int:
    """Print one tablet with its replicas, and return the exit code."""

    async def run() -> dict[str, Any]:
        async with cluster.masters() as (client, catalog):
            found = await collect_state(client.connection, catalog, timeout_s=cluster.timeout_s)
            tablets = {one["tablet_id"]: one for one in _plain_tablets(found)}
            plain = tablets[pick("tablet", tablet, {name: name for name in tablets}, LIST)]
            if count_rows:
                plain["rows"] = await _count(client.connection, plain, cluster.timeout_s)
            return plain

    found = asyncio.run(run())
    if as_json:
        print_json(found)
    else:
        _print(found)
    return EXIT_OK


def _print(found: dict[str, Any]) -> None:
    print_facts(
        {
            "tablet": found["tablet_id"],
            "table": f"{found['table']} ({found['table_id']})",
            "partition": found["partition"],
            "state": found["state"],
            "health": found["health"] + (f": {found['why']}" if found["why"] else ""),
            "leader": found["leader"] or "-",
            "faults": found["faults"],
            "size": f"{bytes_text(found['size_bytes'])}, the largest replica",
            "rows": found.get("rows", ""),
        }
    )
    print()
    rows = [
        (r["address"], r["role"], r["term"] or "-", r["last"], r["applied"], bytes_text(r["size_bytes"]), r["state"])
        for r in found["replicas"]
    ]
    print_fitted(("REPLICA", "ROLE", "TERM", "LAST", "APPLIED", "SIZE", "STATE"), rows)
    print()
    nodes = [
        (r["address"], r["node_id"], r["location"] or "-", age_text(r["silent_ms"]), r["version"] or "-")
        for r in found["replicas"]
    ]
    print_fitted(("REPLICA", "NODE", "LOCATION", "HEARD", "VERSION"), nodes)
    for replica in found["replicas"]:
        if replica["unheard"]:
            note(f"{replica['address']} has not heard from these members for too long: {', '.join(replica['unheard'])}")


# -- plain values ----------------------------------------------------------------------------------


def _plain_tablets(found: ClusterState) -> list[dict[str, Any]]:
    """Return every tablet of a cluster state. ``Unavailable``: the masters could not list the tablets."""
    if found.problem:
        raise Unavailable(found.problem)
    lines = {line.node_id: line for line in found.servers}
    plain = []
    for table in sorted(found.tables, key=lambda table: table.name):
        health = table_health(table, found.nodes)
        for place, tablet in zip(table.tablets, health.tablets, strict=True):
            plain.append(_plain(table, place, tablet, found, lines))
    return plain


def _plain(
    table: TableDescription,
    place: TabletPlace,
    health: TabletHealth,
    found: ClusterState,
    lines: dict[NodeId, ServerLine],
) -> dict[str, Any]:
    sizes = [replica.size_bytes for replica in health.replicas if replica.size_bytes is not None]
    return {
        "tablet_id": place.tablet_id,
        "table": table.name,
        "table_id": table.table_id,
        "partition": partition_text(table, place),
        "state": place.state.value,
        "health": health.verdict.value,
        "why": health.why,
        "faults": tolerance_text(
            [_type_that_counts(replica) for replica in health.replicas],
            down=sum(bool(replica.problem) for replica in health.replicas if replica.votes),
        ),
        "leader": next((address for node, address in place.members if node == place.leader), None),
        "size_bytes": max(sizes, default=None),
        "replicas": [_plain_replica(replica, found, lines.get(replica.node_id)) for replica in health.replicas],
    }


def _type_that_counts(replica: ReplicaHealth) -> MemberType:
    if not replica.votes:
        return MemberType.NON_VOTER
    return MemberType.WITNESS if replica.log_only else MemberType.VOTER


def _plain_replica(replica: ReplicaHealth, found: ClusterState, line: ServerLine | None) -> dict[str, Any]:
    info = found.nodes[replica.node_id].info if replica.node_id in found.nodes else None
    return {
        "node_id": replica.node_id,
        "address": replica.address,
        "role": replica.role,
        "state": replica.state,
        "problem": replica.problem,
        "term": replica.term,
        "last": replica.last,
        "commit": replica.commit,
        "applied": replica.applied,
        "config": replica.config,
        "size_bytes": replica.size_bytes,
        "needs_copy": replica.needs_copy,
        "unheard": [found.address_of(node) for node in replica.unheard],
        "location": "" if line is None else line.location,
        "silent_ms": None if line is None else line.silent_ms,
        "version": "" if info is None else info.version,
    }


async def _count(connection: Connection, found: dict[str, Any], timeout_s: float) -> int:
    """Count the rows of a tablet in one snapshot. Reads the first key column of every row."""
    members = [(replica["node_id"], replica["address"]) for replica in found["replicas"]]
    opened = await connection.tablet(found["tablet_id"], members=members, timeout_s=timeout_s)
    spec = ScanSpec(columns=opened.schema.key[:1])
    return sum([len(batch) async for batch in opened.scan(spec, timeout_s=timeout_s)])
