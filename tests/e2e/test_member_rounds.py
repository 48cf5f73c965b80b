"""Members change on real processes while clients write at full speed. ``tests/soak`` does it fifty times in a row."""

from __future__ import annotations

import asyncio
from pathlib import Path

from stelae.cli.node_formatting import format_here
from stelae.local.cluster import LocalCluster
from tests.soak.member_rounds import OPTIONS, SPEC, change_members

ROUNDS = 4
"""The number of rounds after which every node was added, has led, and was removed."""


def test_members_change_under_load_and_nothing_is_lost(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "cluster", SPEC, OPTIONS, formatted=format_here)
    try:
        cluster.start()
        report = asyncio.run(change_members(cluster, ROUNDS))
    finally:
        for node in cluster.nodes:
            node.kill()
    assert report.rounds == ROUNDS
    assert (report.lost, report.unexpected, report.disagreement) == ([], [], "")
    assert report.acknowledged > 100 * ROUNDS, report
