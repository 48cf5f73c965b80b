"""Carries out ``stelae check``."""

from __future__ import annotations

import asyncio

import msgspec

from stelae.cli.errors import EXIT_FAILED, EXIT_OK
from stelae.cli.output import note, print_json, print_table
from stelae.cli.run_table import Cluster
from stelae.client.checkup import Checkup, check
from stelae.client.health import TabletHealth, Verdict


def run_check(cluster: Cluster, *, checksums: bool, as_json: bool) -> int:
    """Check a cluster and say what was found."""

    async def run() -> Checkup:
        async with cluster.masters() as (client, catalog):
            return await check(client.connection, catalog, checksums=checksums, progress=note)

    found = asyncio.run(run())
    if as_json:
        print_json({**msgspec.to_builtins(found), "ok": found.healthy})
    else:
        _print(found)
    return EXIT_OK if found.healthy else EXIT_FAILED


def _print(found: Checkup) -> None:
    rows = [("master", r.address, r.role, r.problem or "ok") for r in found.masters.replicas]
    rows += [("tablet server", s.address, s.mode, s.problem or "ok") for s in found.servers]
    print_table(("NODE", "ADDRESS", "", "HEALTH"), rows)
    if found.tables:
        print()
        counts = [
            (t.name, t.state, len(t.tablets), sum(tablet.verdict is not Verdict.HEALTHY for tablet in t.tablets))
            for t in found.tables
        ]
        print_table(("TABLE", "STATE", "TABLETS", "NOT HEALTHY"), counts)
    for tablet in (found.masters, *(tablet for table in found.tables for tablet in table.tablets)):
        if tablet.verdict is not Verdict.HEALTHY:
            _print_matrix(tablet)
    if found.checksums:
        print(f"\nreplicas of {len(found.checksums)} tablets have equal rows")
    for problem in found.problems:
        note(problem)
    print("\nhealthy" if found.healthy else f"\nNOT HEALTHY: {len(found.problems)} problems")


def _print_matrix(tablet: TabletHealth) -> None:
    print(f"\n{tablet.tablet_id}: {tablet.verdict}")
    rows = [
        (r.address, r.role, r.term, (r.leader or "-")[:8], r.last, r.commit, r.applied, r.problem or "runs")
        for r in tablet.replicas
    ]
    print_table(("REPLICA", "ROLE", "TERM", "LEADER", "LAST", "COMMIT", "APPLIED", ""), rows)
