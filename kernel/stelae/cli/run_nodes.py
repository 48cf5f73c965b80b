"""Carries out ``list`` and ``describe`` of ``stelae tserver`` and ``stelae master``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from stelae.check.cluster_state import ClusterState, collect_state
from stelae.check.findings import too_much
from stelae.check.health import NodeFacts, in_short
from stelae.cli.kit.errors import EXIT_OK
from stelae.cli.kit.name_lookup import pick_node
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.terminal_layout import age_text, bytes_text, print_facts, print_fitted
from stelae.cli.masters_target import MastersTarget
from stelae.cli.plain_nodes import UUID_LETTERS, plain_masters, plain_servers, state_of
from stelae.cli.unlisted_master import with_unlisted_master
from stelae.spi.errors import Unavailable


def run_servers(cluster: MastersTarget, *, as_json: bool) -> int:
    """Print the tablet servers and return the exit code."""
    servers = plain_servers(asyncio.run(_collect(cluster, masters_alone=False)))
    if as_json:
        print_json({"servers": servers})
        return EXIT_OK
    rows = [
        (
            server["address"],
            server["node_id"][:UUID_LETTERS],
            state_of(server),
            age_text(server["silent_ms"]),
            _dash(server["replicas"]),
            _dash(server["leaders"]),
            bytes_text(server["size_bytes"]),
            bytes_text(server["free_bytes"]),
            server["location"] or "-",
        )
        for server in servers
    ]
    print_fitted(("ADDRESS", "UUID", "STATE", "HEARD", "REPLICAS", "LEADS", "SIZE", "FREE", "LOCATION"), rows)
    return EXIT_OK


def run_server(cluster: MastersTarget, name: str, *, settings: bool, as_json: bool) -> int:
    """Print one tablet server and return the exit code."""
    found = asyncio.run(_collect(cluster, masters_alone=False))
    server = _named(cluster, "tablet server", name, plain_servers(found), "stelae tserver list")
    facts = found.nodes[server["node_id"]]
    more = _details(facts)
    if as_json:
        print_json({**server, **more})
        return EXIT_OK
    print_facts(
        {
            "tablet server": server["address"],
            "node": server["node_id"],
            "state": state_of(server) + (f": {server['problem']}" if server["problem"] else ""),
            "mode": server["mode"],
            "last heard": age_text(server["silent_ms"]) + (" ago" if server["silent_ms"] is not None else ""),
            "location": server["location"] or "-",
            **_common(facts),
            "replicas": f"{_dash(server['replicas'])}, leads {_dash(server['leaders'])}",
            "size": bytes_text(server["size_bytes"]),
            "failed": "; ".join(f"{one['tablet_id']}: {one['reason']}" for one in more["failed"]),
        }
    )
    _print_replicas(found, more["replica_list"])
    _print_settings(facts, settings)
    return EXIT_OK


def run_masters(cluster: MastersTarget, *, as_json: bool) -> int:
    """Print the masters and return the exit code."""
    masters = plain_masters(asyncio.run(_collect(cluster, masters_alone=True)))
    if as_json:
        print_json({"masters": masters})
        return EXIT_OK
    rows = [
        (
            m["address"],
            m["type"] or "-",
            m["role"],
            _dash(m["term"]),
            m["last"],
            m["applied"],
            m["version"] or "-",
            age_text(m["uptime_ms"]) if m["uptime_ms"] is not None else "-",
            in_short(m["problem"]) or "ok",
        )
        for m in masters
    ]
    print_fitted(("ADDRESS", "TYPE", "ROLE", "TERM", "LAST", "APPLIED", "VERSION", "UP", "STATE"), rows)
    return EXIT_OK


def run_master(cluster: MastersTarget, name: str, *, settings: bool, as_json: bool) -> int:
    """Print one master and return the exit code."""
    found = asyncio.run(_collect(cluster, masters_alone=True, master=name))
    master = _named(cluster, "master", name, plain_masters(found), "stelae master list")
    facts = found.nodes[master["node_id"]]
    if as_json:
        print_json({**master, **_details(facts)})
        return EXIT_OK
    print_facts(
        {
            "master": master["address"],
            "node": master["node_id"],
            "state": master["problem"] or "ok",
            "role": f"{master['role']} in term {master['term']}",
            "led by": found.address_of(master["leader"]),
            "catalog": f"last entry {master['last']}, applied up to {master['applied']}",
            "masters": ", ".join(address for _, address in (facts.info.masters if facts.info is not None else ())),
            "config": f"{master['config_id']}, {master['type'] or 'which does not list it'}",
            **_common(facts),
        }
    )
    _print_settings(facts, settings)
    return EXIT_OK


# -- plain values ----------------------------------------------------------------------------------


async def _collect(cluster: MastersTarget, *, masters_alone: bool, master: str = "") -> ClusterState:
    """Collect the state of the cluster. Without a leader, only masters can be shown.

    ``master`` is the name that a user gives to one; it may be in no config.

    ``Unavailable``: the masters could not list the tables and servers."""
    async with cluster.masters() as (client, catalog):
        found = await collect_state(client.connection, catalog, tables=(), timeout_s=cluster.timeout_s)
        if master:
            found = await with_unlisted_master(found, client.connection, cluster, master)
    if found.problem and not masters_alone:
        raise Unavailable(f"{found.problem}; list the masters with: stelae master list")
    return found


def _details(facts: NodeFacts) -> dict[str, Any]:
    """Return what ``describe`` shows in addition to ``list``."""
    info, sizes = facts.info, facts.facts
    replicas = [
        {
            "tablet_id": report.tablet_id,
            "table_id": sizes[report.tablet_id].table_id if report.tablet_id in sizes else "",
            "role": report.role,
            "state": f"{report.state} {report.failure}".strip(),
            "term": report.term,
            "last": str(report.last),
            "applied": report.applied,
            "size_bytes": sizes[report.tablet_id].size_bytes if report.tablet_id in sizes else None,
        }
        for report in facts.reports.values()
    ]
    return {
        "cluster_id": None if info is None else info.cluster_id,
        "incarnation": None if info is None else info.incarnation,
        "uptime_ms": None if info is None else info.uptime_ms,
        "clock_ahead_ms": None if info is None else facts.clock_ahead_ms,
        "peers": [] if info is None else msgspec.to_builtins(info.peers),
        "failed": [] if info is None else msgspec.to_builtins(info.failed),
        "quarantine": None if facts.quarantine is None else msgspec.to_builtins(facts.quarantine),
        "replica_list": replicas,
        "settings": {} if info is None else info.settings,
    }


def _common(facts: NodeFacts) -> dict[str, object]:
    """Return facts that masters and tablet servers have in common, as text."""
    info, quarantine = facts.info, facts.quarantine
    if info is None:
        return {"version": "unknown: the node has not answered"}
    unreached = [peer.address for peer in info.peers if not peer.connected]
    found: dict[str, object] = {
        "version": info.version,
        "up for": age_text(info.uptime_ms),
        "cluster": info.cluster_id,
        "engines": ", ".join(f"{k}: {info.settings.get(f'engines.{k}')}" for k in ("wal", "consensus", "store")),
        "peers": f"{len(info.peers) - len(unreached)} of {len(info.peers)} reached"
        + (f"; not {', '.join(unreached)}" if unreached else ""),
        "clock": f"{facts.clock_ahead_ms} ms ahead of this machine, +/- {facts.clock_error_ms} ms",
        "disk": f"{bytes_text(info.free_bytes)} free",
    }
    if quarantine is not None:
        limits = f"at most {bytes_text(quarantine.bytes_max)} and {age_text(quarantine.age_s_max * 1000)}"
        found["quarantine"] = f"{quarantine.count} directories, {bytes_text(quarantine.size_bytes)}; {limits}" + (
            f"; {excess}" if (excess := too_much(quarantine)) else ""
        )
    return found


def _named(cluster: MastersTarget, what: str, given: str, plain: Sequence[dict[str, Any]], see: str) -> dict[str, Any]:
    addresses: dict[str, str] = {one["node_id"]: one["address"] for one in plain}
    known = {name: node_id for name, node_id in cluster.names().items() if node_id in addresses}
    node_id = pick_node(what, given, addresses, see, known)
    return next(one for one in plain if one["node_id"] == node_id)


def _print_replicas(found: ClusterState, replicas: Sequence[dict[str, Any]]) -> None:
    tables: dict[str, str] = {table.table_id: table.name for table in found.summaries}
    rows = [
        (one["tablet_id"], tables.get(one["table_id"], "-"), one["role"], one["state"], bytes_text(one["size_bytes"]))
        for one in replicas
    ]
    if rows:
        print()
        print_fitted(("TABLET", "TABLE", "ROLE", "STATE", "SIZE"), rows)


def _print_settings(facts: NodeFacts, wanted: bool) -> None:
    if wanted and facts.info is not None:
        print()
        print_fitted(("SETTING", "VALUE"), sorted(facts.info.settings.items()))
    elif wanted:
        note("the settings are unknown: the node has not answered")


def _dash(value: object) -> str:
    return "-" if value is None else str(value)
