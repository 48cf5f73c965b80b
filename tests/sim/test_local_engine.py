"""Runs of one node with the consensus engine ``local``."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from stelae.sim.fault_plan import FaultKind, draw_plan
from stelae.sim.profile import ProfileKind, draw_profile
from stelae.sim.run import run_seed
from tests.at_length import times

SEEDS = range(1, 1 + times(8))

NEEDED = {
    "fault.crash",
    "fault.crash_in_commit",
    "fault.kill_in_commit",
    "fault.kill",
    "fault.disk_full",
    "event.PersistFailed",
    "ready.reads_ready",
    "ready.committed_config",
    "transfer.refused",
}
"""What the runs together must show."""


def test_runs_of_one_node_lose_nothing_and_show_what_they_are_for() -> None:
    shown: set[str] = set()
    for seed in SEEDS:
        result = run_seed(seed, kind=ProfileKind.LOCAL)
        assert result.violation is None, f"seed {seed}: {result.violation}"
        assert result.writes_acknowledged > 50
        coverage: Mapping[str, int] = result.coverage
        shown |= {name for name, count in coverage.items() if count}
    assert shown >= NEEDED, f"not shown: {NEEDED - shown}"


@pytest.mark.parametrize("seed", range(1, 40))
def test_a_single_node_has_no_faults_of_links_and_none_that_lose_its_only_replica(seed: int) -> None:
    plan = draw_plan(seed, draw_profile(seed, ProfileKind.LOCAL))
    others = {FaultKind.PARTITION, FaultKind.PARTITION_IN, FaultKind.PARTITION_OUT, FaultKind.CUT_LINK}
    others |= {FaultKind.SYNC_FAILED, FaultKind.DAMAGE, FaultKind.OLDER_LOG, FaultKind.LOST_REPLICA}
    assert not others & {fault.kind for fault in plan}
    assert [fault.number for fault in plan] == list(range(len(plan)))
