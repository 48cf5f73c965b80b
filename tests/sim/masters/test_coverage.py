"""Over some seeds every floor of the masters is met, and no run violates an invariant."""

from __future__ import annotations

from collections import Counter

import pytest

from stelae.protocol.actions import ServerAction
from stelae.protocol.fences import FenceVerdict
from stelae.protocol.master_messages import Change
from stelae.server.master.core.operations import Outcome
from stelae.sim.masters.faults import MastersFaultKind
from stelae.sim.masters.run import MastersRunResult, run_seed
from stelae.sim.masters.steps import ChangeStep

pytestmark = pytest.mark.xdist_group("coverage of masters")
"""One process runs the seeds once for all tests of this file."""

SEEDS = range(1, 49)

STRIKES = (MastersFaultKind.STRIKE_CRASH, MastersFaultKind.STRIKE_PAUSE, MastersFaultKind.STRIKE_PARTITION)

OTHERS = {
    "action.of_a_deposed_master",
    "deleted.Evicted",
    "deleted.Terminal",
    "log.proposed_by_deposed",
    "log.tail_lost",
    "log.tail_survived",
    "network.duplicated",
    "network.lost",
    "read.NOT_LEADER",
    "read.TOO_STALE",
    "read.answered",
    "read.by_follower",
    "read.by_leader",
    "refused.NOT_LEADER",
    "refused.NOT_REPLICATED",
    "refused.OUTCOME_UNKNOWN",
    "refused.TABLE_BUSY",
    "report.full",
    "report.incremental",
    "report.of_a_former_run",
    "report.two_leaders",
    "tablet.config_changed",
    "tablet.copied",
    "tablet.newcomer_of_pending",
    "unheard.AlterSchema",
}


@pytest.fixture(scope="module")
def results() -> list[MastersRunResult]:
    """Run the seeds once."""
    return [run_seed(seed) for seed in SEEDS]


@pytest.fixture(scope="module")
def seen(results: list[MastersRunResult]) -> Counter[str]:
    """Return the sum of the coverage counts of all seeds."""
    total: Counter[str] = Counter()
    for result in results:
        total.update(result.coverage)
    return total


def test_no_seed_violates_an_invariant(results: list[MastersRunResult]) -> None:
    assert [(result.seed, result.violation) for result in results if result.violation] == []
    assert min(result.events for result in results) >= 3_000
    assert min(result.entries for result in results) >= 30


def test_every_kind_of_fault_strikes(seen: Counter[str]) -> None:
    assert [kind for kind in MastersFaultKind if not seen[f"fault.{kind}"]] == []


def test_a_master_is_struck_in_every_way_at_every_step_of_a_change(seen: Counter[str]) -> None:
    wanted = [f"struck.{step}.{kind}" for step in ChangeStep for kind in STRIKES]
    assert [name for name in wanted if not seen[name]] == []


def test_every_change_is_made_and_refused(seen: Counter[str]) -> None:
    kinds = [kind.__name__ for kind in Change.__args__ if kind.__name__ != "SetServerMode"]
    assert [k for k in kinds if not seen[f"change.{k}.done"] or not seen[f"change.{k}.refused"]] == []


def test_every_action_takes_effect_and_is_refused_by_its_fence(seen: Counter[str]) -> None:
    kinds = [kind.__name__ for kind in ServerAction.__args__]
    assert [kind for kind in kinds if not seen[f"action.{kind}.{FenceVerdict.ACT}"]] == []
    assert [kind for kind in kinds if not seen[f"action.{kind}.{FenceVerdict.REFUSED}"]] == []


def test_every_outcome_of_replication_happens(seen: Counter[str]) -> None:
    assert [outcome for outcome in Outcome if not seen[f"outcome.{outcome}"]] == []


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_everything_else_that_is_counted_happens(seen: Counter[str], name: str) -> None:
    assert seen[name] > 0
