"""Carries out ``stelae cluster describe``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from stelae.check.cluster_state import ClusterState, collect_state
from stelae.check.health import in_short
from stelae.cli.kit.errors import EXIT_FAILED, EXIT_OK
from stelae.cli.kit.name_lookup import shorten
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.terminal_layout import age_text, bytes_text, print_facts, print_fitted
from stelae.cli.masters_target import MastersTarget
from stelae.cli.plain_nodes import UUID_LETTERS, plain_masters, plain_servers, state_of
from stelae.cli.run_table import describe_plainly
from stelae.client.counted import counted
from stelae.protocol.catalog_names import TableState
from stelae.protocol.master_messages import TableDescription, TabletPlace
from stelae.spi.consensus import Role
from stelae.spi.ids import NodeId

USUAL = (str(Role.LEADER), str(Role.FOLLOWER))
RUNNING = "RUNNING"


def run_cluster_describe(cluster: MastersTarget, *, tables: Sequence[str], brief: bool, as_json: bool) -> int:
    """Print the map of a cluster and return the exit code."""
    found = asyncio.run(_collect(cluster, tables))
    plain = describe_cluster(found)
    if as_json:
        print_json(plain)
    else:
        print_map(plain, brief=brief)
    if found.problem:
        note(found.problem)
    return EXIT_FAILED if found.problem else EXIT_OK


async def _collect(cluster: MastersTarget, tables: Sequence[str]) -> ClusterState:
    async with cluster.masters() as (client, catalog):
        return await collect_state(client.connection, catalog, tables=tables or None, timeout_s=cluster.timeout_s)


def describe_cluster(found: ClusterState) -> dict[str, Any]:
    """Return the map of a cluster as plain values: masters, servers, and tables with the replicas of each tablet.

    ``cluster_id`` is ``None`` if no node has answered with it. ``problem`` is empty if a master leads."""
    ids = {facts.info.cluster_id for facts in found.nodes.values() if facts.info is not None}
    return {
        "cluster_id": min(ids, default=None),
        "masters": plain_masters(found),
        "servers": plain_servers(found),
        "tables": [_table(found, table) for table in sorted(found.tables, key=lambda table: table.name)],
        "dropped": [
            {"name": one.name, "table_id": one.table_id, "state": one.state.value}
            for one in found.summaries
            if one.state is TableState.SOFT_DELETED
        ],
        "problem": found.problem,
    }


def _table(found: ClusterState, table: TableDescription) -> dict[str, Any]:
    plain = describe_plainly(table)
    for tablet, place in zip(plain["tablets"], table.tablets, strict=True):
        replicas = [_replica(found, place, node, address) for node, address in place.members]
        replicas.sort(key=lambda replica: (replica["node_id"] != place.leader, replica["address"]))
        sizes = [replica["size_bytes"] for replica in replicas if replica["size_bytes"] is not None]
        tablet |= {"replicas": replicas, "size_bytes": max(sizes, default=None)}
    known = [tablet["size_bytes"] for tablet in plain["tablets"] if tablet["size_bytes"] is not None]
    return {**plain, "size_bytes": sum(known) if known else None}


def _replica(found: ClusterState, place: TabletPlace, node: NodeId, address: str) -> dict[str, Any]:
    facts = found.nodes.get(node)
    report = None if facts is None else facts.reports.get(place.tablet_id)
    size = None if facts is None else facts.facts.get(place.tablet_id)
    missing = "SILENT" if facts is None or facts.problem else "MISSING"
    return {
        "node_id": node,
        "address": address,
        "role": None if report is None else report.role,
        "state": missing if report is None else report.state,
        "size_bytes": None if size is None else size.size_bytes,
    }


# -- as text ---------------------------------------------------------------------------------------


def print_map(plain: Mapping[str, Any], *, brief: bool) -> None:
    """Print what :func:`describe_cluster` has returned. ``brief``: without the tablets."""
    tables = plain["tables"]
    tablets = sum(len(table["tablets"]) for table in tables)
    leader = next((master["address"] for master in plain["masters"] if master["role"] == Role.LEADER), "none")
    servers = f"{counted(len(plain['servers']), 'tablet server')}, {counted(len(tables), 'table')}"
    print_facts(
        {
            "cluster": plain["cluster_id"] or "unknown",
            "nodes": f"{counted(len(plain['masters']), 'master')}, {servers}, {counted(tablets, 'tablet')}",
            "leading master": leader,
        }
    )
    _print_masters(plain["masters"])
    if plain["servers"]:
        _print_servers(plain["servers"])
    if tables:
        _print_tables(tables)
    for table in () if brief else tables:
        print(f"\n{table['name']}: {table['partitioning'].removeprefix('none: ')}")
        _print_tablets(table["tablets"])
    for one in plain["dropped"]:
        print(f"\n{one['name']}: {one['state']}")


def _print_masters(masters: Sequence[Mapping[str, Any]]) -> None:
    print()
    rows = [
        (m["address"], m["node_id"][:UUID_LETTERS], m["type"] or "-", m["role"], in_short(m["problem"]) or "ok")
        for m in masters
    ]
    print_fitted(("MASTER", "UUID", "TYPE", "ROLE", "STATE"), rows)


def _print_servers(servers: Sequence[dict[str, Any]]) -> None:
    print()
    rows = [
        (
            server["address"],
            server["node_id"][:UUID_LETTERS],
            state_of(server),
            age_text(server["silent_ms"]),
            "-" if server["replicas"] is None else server["replicas"],
            "-" if server["leaders"] is None else server["leaders"],
            bytes_text(server["size_bytes"]),
            server["location"] or "-",
        )
        for server in servers
    ]
    print_fitted(("TABLET SERVER", "UUID", "STATE", "HEARD", "REPLICAS", "LEADS", "SIZE", "LOCATION"), rows)


def _print_tables(tables: Sequence[Mapping[str, Any]]) -> None:
    print()
    rows = [
        (
            table["name"],
            table["state"],
            len(table["tablets"]),
            table["replication_factor"],
            bytes_text(table["size_bytes"]),
        )
        for table in tables
    ]
    print_fitted(("TABLE", "STATE", "TABLETS", "REPLICAS", "SIZE"), rows)


def _print_tablets(tablets: Sequence[Mapping[str, Any]]) -> None:
    short = shorten(tablet["tablet_id"] for tablet in tablets)
    rows = [
        (
            short[tablet["tablet_id"]],
            tablet["state"],
            bytes_text(tablet["size_bytes"]),
            tablet["leader"] or "-",
            ", ".join(_other_text(one) for one in tablet["replicas"] if one["address"] != tablet["leader"]) or "-",
            tablet["partition"],
        )
        for tablet in tablets
    ]
    print_fitted(("TABLET", "STATE", "SIZE", "LEADER", "OTHERS", "ROWS"), rows)


def _other_text(replica: Mapping[str, Any]) -> str:
    """Return the address of a replica that does not lead, with its role and its state if they are unusual."""
    role, state = replica["role"], replica["state"]
    words = [role.lower()] if role not in (None, *USUAL) else []
    words += [state] if state != RUNNING else []
    return " ".join([replica["address"], *words])
