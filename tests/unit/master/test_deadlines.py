"""The core's deadline: a driver that sleeps until then misses nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.master.company import SETTINGS, Company, create


def idle(company: Company) -> int:
    """Step each millisecond up to the deadline, then at it; returns how many effects came at the deadline."""
    deadline = company.core.next_deadline()
    assert deadline is not None
    while company.now_us + 1_000 < deadline:
        company.now_us += 1_000
        assert company.step() == [], f"an effect at {company.now_us}, before the deadline {deadline}"
    company.now_us = max(company.now_us, deadline)
    return len(company.step())


@pytest.mark.parametrize("tables", [0, 3])
@pytest.mark.parametrize(("scan_interval_ms", "policy_interval_ms"), [(230, 1010), (1010, 230)])
def test_nothing_happens_before_the_deadline_of_a_leader_that_hears_nothing(
    tables: int, scan_interval_ms: int, policy_interval_ms: int
) -> None:
    settings = replace(SETTINGS, scan_interval_ms=scan_interval_ms, policy_interval_ms=policy_interval_ms)
    company = Company(settings)
    company.lead(1)
    company.hear()
    company.commit()
    for number in range(tables):
        company.ask(create(f"t{number}"), sequence=number + 1)
        company.commit()
    company.step()
    assert sum(idle(company) for _ in range(40)) > 0


def test_nothing_happens_before_the_deadline_of_a_follower() -> None:
    company = Company()
    company.follow(1)
    assert sum(idle(company) for _ in range(10)) > 0


def test_a_leader_that_waits_for_the_other_masters_asks_them_again_at_its_deadline() -> None:
    company = Company()
    company.masters_object = "a master does not answer"
    company.lead(1)
    assert sum(idle(company) for _ in range(10)) > 0


def test_a_master_without_a_leader_has_nothing_to_do() -> None:
    assert Company().core.next_deadline() is None
