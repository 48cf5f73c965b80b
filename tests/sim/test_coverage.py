"""Over a hundred seeds every floor is met, and no run violates an invariant or ends early."""

from __future__ import annotations

import pytest

from stelae.sim.report import RunResult
from tests.sim.floors import FAULTS, MOVES, OTHERS, READY, run_until_seen
from tests.sim.messages import UNREACHABLE


class Seen:
    """The results of the seeds, and the names of everything that happened in them."""

    def __init__(self) -> None:
        self.results: list[RunResult] = []
        self.names: set[str] = set()


@pytest.fixture(scope="module")
def seen() -> Seen:
    """Run the seeds once."""
    found = Seen()
    for result, names in run_until_seen():
        found.results.append(result)
        found.names |= names
    return found


def test_no_seed_violates_an_invariant(seen: Seen) -> None:
    assert [(result.seed, result.violation) for result in seen.results if result.violation is not None] == []


def test_a_seed_runs_at_least_five_thousand_events_and_acknowledges_writes(seen: Seen) -> None:
    assert min(result.events for result in seen.results) >= 5_000
    assert min(result.writes_acknowledged for result in seen.results) > 0


def test_no_seed_shows_a_message_that_is_called_unreachable(seen: Seen) -> None:
    assert seen.names & set(UNREACHABLE) == set()


def test_every_kind_of_fault_changes_something(seen: Seen) -> None:
    assert sorted(FAULTS - seen.names) == []


def test_every_field_of_a_ready_is_used(seen: Seen) -> None:
    assert sorted(READY - seen.names) == []


def test_every_row_of_the_transition_table_that_can_occur_does(seen: Seen) -> None:
    assert sorted(MOVES - seen.names) == []


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_everything_else_that_is_counted_happens(seen: Seen, name: str) -> None:
    assert name in seen.names
