"""Masters and tablet servers as plain values, from what the nodes of a cluster have answered."""

from __future__ import annotations

from typing import Any

from stelae.check.cluster_state import ClusterState
from stelae.check.findings import SILENT_MS, server_problem
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.spi.members import Member

UUID_LETTERS = 8
"""Letters of a uuid in a table. Commands take as few as four."""


def plain_servers(found: ClusterState) -> list[dict[str, Any]]:
    """Return the tablet servers that the masters know."""
    plain = []
    for line in found.servers:
        facts = found.nodes[line.node_id]
        leads = sum(report.role == "LEADER" for report in facts.reports.values())
        plain.append(
            {
                "node_id": line.node_id,
                "address": line.address,
                "mode": line.mode.value,
                "silent_ms": line.silent_ms,
                "location": line.location,
                "version": "" if facts.info is None else facts.info.version,
                "replicas": None if facts.problem else len(facts.reports),
                "leaders": None if facts.problem else leads,
                "size_bytes": None if facts.info is None else sum(one.size_bytes for one in facts.info.replicas),
                "free_bytes": None if facts.info is None else facts.info.free_bytes,
                "problem": server_problem(found, line.node_id),
            }
        )
    return plain


def plain_masters(found: ClusterState) -> list[dict[str, Any]]:
    """Return the masters of the newest committed config."""
    plain = []
    for node_id, address in found.masters:
        facts = found.nodes[node_id]
        report = facts.reports.get(SYSTEM_TABLET)
        member = None if found.masters_config is None else found.masters_config.member(node_id)
        plain.append(
            {
                "node_id": node_id,
                "address": address,
                "type": "" if member is None else member.member_type.value,
                "config_id": "" if found.masters_config is None else str(found.masters_config.op_id),
                "role": "-" if report is None else report.role,
                "term": None if report is None else report.term,
                "leader": None if report is None else report.leader,
                "last": "-" if report is None else str(report.last),
                "applied": "-" if report is None else report.applied,
                "version": "" if facts.info is None else facts.info.version,
                "uptime_ms": None if facts.info is None else facts.info.uptime_ms,
                "problem": facts.problem or _problem(found, member, has_tablet=report is not None),
            }
        )
    return plain


def _problem(found: ClusterState, member: Member | None, *, has_tablet: bool) -> str:
    if member is None and (config := found.masters_config) is not None:
        listed = ", ".join(one.address for one in config.members)
        return f"it is none of the masters of config {config.op_id} ({listed}): it was removed, or waits to be added"
    return "" if has_tablet else "it has no system tablet"


def state_of(server: dict[str, Any]) -> str:
    """Return the state of a tablet server as one word: `LIVE`, a mode of operators, `SILENT` or `DOWN`."""
    if server["replicas"] is None:
        return "DOWN"
    silent = server["silent_ms"] is None or server["silent_ms"] > SILENT_MS
    return "SILENT" if silent else "LIVE" if server["mode"] == "NORMAL" else str(server["mode"])
