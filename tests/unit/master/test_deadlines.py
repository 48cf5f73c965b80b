"""The core's deadline: a driver that sleeps until then misses nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.master.master_with_servers import SETTINGS, MasterWithServers, create


def idle(cluster: MasterWithServers) -> int:
    """Step each millisecond up to the deadline, then at it; returns how many effects came at the deadline."""
    deadline = cluster.core.next_deadline()
    assert deadline is not None
    while cluster.now_us + 1_000 < deadline:
        cluster.now_us += 1_000
        assert cluster.step() == [], f"an effect at {cluster.now_us}, before the deadline {deadline}"
    cluster.now_us = max(cluster.now_us, deadline)
    return len(cluster.step())


@pytest.mark.parametrize("tables", [0, 3])
@pytest.mark.parametrize(("scan_interval_ms", "policy_interval_ms"), [(230, 1010), (1010, 230)])
def test_nothing_happens_before_the_deadline_of_a_leader_that_hears_nothing(
    tables: int, scan_interval_ms: int, policy_interval_ms: int
) -> None:
    settings = replace(SETTINGS, scan_interval_ms=scan_interval_ms, policy_interval_ms=policy_interval_ms)
    cluster = MasterWithServers(settings)
    cluster.lead(1)
    cluster.hear()
    cluster.commit()
    for number in range(tables):
        cluster.ask(create(f"t{number}"), sequence=number + 1)
        cluster.commit()
    cluster.step()
    assert sum(idle(cluster) for _ in range(40)) > 0


def test_nothing_happens_before_the_deadline_of_a_follower() -> None:
    cluster = MasterWithServers()
    cluster.follow(1)
    assert sum(idle(cluster) for _ in range(10)) > 0


def test_a_leader_that_waits_for_the_other_masters_asks_them_again_at_its_deadline() -> None:
    cluster = MasterWithServers()
    cluster.masters_object = "a master does not answer"
    cluster.lead(1)
    assert sum(idle(cluster) for _ in range(10)) > 0


def test_a_master_without_a_leader_has_nothing_to_do() -> None:
    assert MasterWithServers().core.next_deadline() is None
