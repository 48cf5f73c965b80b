"""Over some seeds every floor of the masters is met, and no run violates an invariant."""

from __future__ import annotations

import pytest

from stelae.sim.masters.run import MastersRunResult
from tests.sim.masters.floors import (
    ACTIONS,
    CHANGES,
    COMING,
    FAULTS,
    OTHERS,
    OUTCOMES,
    STRIKES,
    names_of,
    run_until_seen,
)

pytestmark = pytest.mark.xdist_group("coverage of masters")
"""One process runs the seeds once for all tests of this file."""


@pytest.fixture(scope="module")
def results() -> list[MastersRunResult]:
    """Run the seeds once."""
    return [*run_until_seen()]


@pytest.fixture(scope="module")
def seen(results: list[MastersRunResult]) -> frozenset[str]:
    """Return the names of everything that happened in the runs."""
    return frozenset[str]().union(*(names_of(result) for result in results))


def test_no_seed_violates_an_invariant(results: list[MastersRunResult]) -> None:
    assert [(result.seed, result.violation) for result in results if result.violation] == []
    assert min(result.events for result in results) >= 3_000
    assert min(result.entries for result in results) >= 30


def test_every_kind_of_fault_strikes(seen: frozenset[str]) -> None:
    assert sorted(FAULTS - seen) == []


def test_a_master_is_struck_in_every_way_at_every_step_of_a_change(seen: frozenset[str]) -> None:
    assert sorted(STRIKES - seen) == []


def test_every_change_is_made_and_refused(seen: frozenset[str]) -> None:
    assert sorted(CHANGES - seen) == []


def test_every_action_takes_effect_and_is_refused_by_its_fence(seen: frozenset[str]) -> None:
    assert sorted(ACTIONS - seen) == []


def test_every_outcome_of_replication_happens(seen: frozenset[str]) -> None:
    assert sorted(OUTCOMES - seen) == []


def test_masters_are_added_removed_and_replaced_in_every_way(seen: frozenset[str]) -> None:
    assert sorted(COMING - seen) == []


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_everything_else_that_is_counted_happens(seen: frozenset[str], name: str) -> None:
    assert name in seen
