"""Carries out ``stelae check``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from stelae.check.cluster_check import CheckReport, NodeCheck, check
from stelae.check.fault_tolerance import losses_text
from stelae.check.health import TabletHealth, TabletVerdict, in_short
from stelae.cli.kit.errors import EXIT_FAILED, EXIT_OK
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.table_lookup import describe_table
from stelae.cli.kit.terminal_layout import age_text, bytes_text, print_fitted, print_note
from stelae.cli.masters_target import MastersTarget
from stelae.client.counted import counted
from stelae.spi.errors import RetryableError
from stelae.spi.ids import NodeId

DISPUTED = (TabletVerdict.CONSENSUS_MISMATCH, TabletVerdict.UNAVAILABLE, TabletVerdict.UNFINISHED)
"""Verdicts of tablets whose consensus matrix is printed."""

MATRICES_MAX = 20
"""Most matrices that are printed. A cluster that has lost two servers may have a thousand."""


def run_check(cluster: MastersTarget, tables: Sequence[str], *, checksums: bool, as_json: bool) -> int:
    """Check a cluster, print the result, and return the exit code."""

    async def run() -> CheckReport:
        async with cluster.masters() as (client, catalog):
            asked = [(await describe_table(catalog, name, cluster.timeout_s)).table_id for name in tables]
            return await check(
                client.connection,
                catalog,
                tables=asked or None,
                checksums=checksums,
                timeout_s=cluster.timeout_s,
                progress=note,
            )

    try:
        found = asyncio.run(run())
    except RetryableError as error:
        if not as_json:
            raise
        print_json({"ok": False, "problems": [f"no master answers: {error}"], "warnings": []})
        return EXIT_FAILED
    if as_json:
        print_json({**msgspec.to_builtins(found), "ok": found.healthy})
    else:
        print_checkup(found)
    return EXIT_OK if found.healthy else EXIT_FAILED


def print_checkup(found: CheckReport) -> None:
    """Print the facts on standard output, and the problems and warnings on standard error."""
    _print_nodes(found)
    _print_masters(found)
    _print_tables(found)
    _print_matrices(found)
    if found.differences:
        print()
        differing = [
            (one.severity, one.setting, "\n".join(f"{value}: {', '.join(nodes)}" for value, nodes in one.values))
            for one in found.differences
        ]
        print_fitted(("", "SETTING", "VALUE AND NODES"), differing)
    if found.checksums:
        print(f"\nreplicas of {counted(len(found.checksums), 'tablet')} have equal rows")
    if found.differ:
        print(f"\nreplicas of {counted(len(found.differ), 'tablet')} have rows that DIFFER")
    if found.not_compared:
        print(f"\n{counted(len(found.not_compared), 'tablet')} with replicas that were not compared")
    for text in found.warnings:
        print_note(f"warning: {text}")
    for problem in found.problems:
        print_note(f"problem: {problem}")
    with_warnings = f", {counted(len(found.warnings), 'warning')}" if found.warnings else ""
    if found.healthy:
        print(f"\nhealthy{with_warnings}")
    else:
        print(f"\nNOT HEALTHY: {counted(len(found.problems), 'problem')}{with_warnings}")


def _print_tables(found: CheckReport) -> None:
    if not found.tables:
        return
    print()
    counts = [
        (
            t.name,
            t.state,
            len(t.tablets),
            sum(tablet.verdict is not TabletVerdict.HEALTHY for tablet in t.tablets),
            losses_text([tablet.losses_survived for tablet in t.tablets]),
        )
        for t in found.tables
    ]
    print_fitted(("TABLE", "STATE", "TABLETS", "NOT HEALTHY", "SURVIVES"), counts)


def _print_nodes(found: CheckReport) -> None:
    roles = {replica.node_id: replica.role for replica in found.masters.replicas}
    rows = [
        (
            "master" if node.role == "master" else "server",
            node.address,
            roles.get(node.node_id, node.mode),
            node.version or "-",
            "-" if node.role == "master" else age_text(node.silent_ms),
            _clock(node),
            _quarantine(node),
            in_short(node.problem) or "ok",  # The full text is printed with the problems.
        )
        for node in found.nodes
    ]
    print_fitted(("NODE", "ADDRESS", "ROLE", "VERSION", "HEARD", "CLOCK", "QUARANTINE", "HEALTH"), rows)


def _print_masters(found: CheckReport) -> None:
    """Print the config of the masters, which says who they are."""
    if (config := found.masters_config) is not None:
        members = ", ".join(f"{member.address} {member.member_type}" for member in config.members)
        print(f"\nmasters: config {config.op_id}: {members}")


def _clock(node: NodeCheck) -> str:
    """Return how far a clock is ahead of the clock of this machine, and how far that may be off."""
    return "-" if node.clock_ahead_ms is None else f"{node.clock_ahead_ms:+d} ms ±{node.clock_error_ms}"


def _quarantine(node: NodeCheck) -> str:
    quarantine = node.quarantine
    return "-" if quarantine is None or not quarantine.count else bytes_text(quarantine.size_bytes)


def _print_matrices(found: CheckReport) -> None:
    """Print the consensus matrices of the tablets whose verdict is in ``DISPUTED``."""
    addresses = {node.node_id: node.address for node in found.nodes}
    disputed = [
        t for t in (found.masters, *(t for table in found.tables for t in table.tablets)) if t.verdict in DISPUTED
    ]
    for tablet in disputed[:MATRICES_MAX]:
        _print_matrix(tablet, addresses)
    if len(disputed) > MATRICES_MAX:
        print(f"\nand {counted(len(disputed) - MATRICES_MAX, 'more tablet')}; stelae check --json shows all of them")


def _print_matrix(tablet: TabletHealth, addresses: Mapping[NodeId, str]) -> None:
    """Print a consensus matrix: the members that the masters have recorded, then what each replica believes."""
    print(f"\n{tablet.tablet_id}: {tablet.verdict}")
    letters = {replica.node_id: chr(ord("A") + place) for place, replica in enumerate(tablet.replicas)}
    believed = {member for replica in tablet.replicas for member in replica.members}
    believed |= {replica.leader for replica in tablet.replicas if replica.leader}
    non_members = sorted(believed - letters.keys())
    letters |= {member: chr(ord("A") + len(tablet.replicas) + place) for place, member in enumerate(non_members)}
    rows: list[tuple[object, ...]] = [("masters", "", "", "", _members(letters, list(letters)[: len(tablet.replicas)]))]
    for r in tablet.replicas:
        config = f"{r.config}{'' if not r.change_pending else ' pending'}"
        leader = letters.get(r.leader, "-") if r.leader else "-"
        rows.append((f"{letters[r.node_id]} {r.role}", r.term or "-", leader, config, _members(letters, r.members)))
    print_fitted(("REPLICA", "TERM", "LEADER", "CONFIG", "MEMBERS"), rows)
    logs: list[tuple[object, ...]] = [
        (
            letters[r.node_id],
            r.address,
            r.last,
            *((r.commit, r.applied) if r.term else "--"),
            r.in_short or ("needs a copy" if r.needs_copy else "no leader" if r.configuring else "runs"),
        )
        for r in tablet.replicas
    ]
    logs += [(letters[member], addresses.get(member, member), "-", "-", "-", "no member") for member in non_members]
    print_fitted(("", "ADDRESS", "LAST", "COMMIT", "APPLIED", "STATE"), logs)


def _members(letters: Mapping[NodeId, str], members: Sequence[NodeId]) -> str:
    return " ".join(sorted(letters[member] for member in members)) or "-"
