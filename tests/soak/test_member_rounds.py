"""Fifty times in a row: a fourth server is added and promoted, the leader removed, and the removed one added again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stelae.cli.node_formatting import format_here
from stelae.local.cluster import LocalCluster
from tests.soak.member_rounds import GAP_MS_MAX, OPTIONS, SPEC, change_members

ROUNDS = 50


def test_members_change_fifty_times_under_load_and_nothing_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = LocalCluster.create(tmp_path / "cluster", SPEC, OPTIONS, formatted=format_here)
    try:
        cluster.start()
        report = asyncio.run(change_members(cluster, ROUNDS))
    finally:
        for node in cluster.nodes:
            node.kill()
    with capsys.disabled():
        print(f"\n{report}")
    assert report.rounds == ROUNDS
    assert (report.lost, report.unexpected, report.disagreement) == ([], [], "")
    assert report.acknowledged > ROUNDS
    assert report.longest_gap_ms <= GAP_MS_MAX, report
