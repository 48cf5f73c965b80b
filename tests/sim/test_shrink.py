"""A failing run is shrunk, and the smaller run violates the same invariant."""

from __future__ import annotations

import pytest

from stelae.sim.fault_plan import Fault, FaultKind
from stelae.sim.invariants import Violation
from stelae.sim.profile import ProfileKind
from stelae.sim.report import RunResult, reproduce_command, show_command, shrink_command
from stelae.sim.run import run_seed
from stelae.sim.run_scope import FULL_RUN, RunScope
from stelae.sim.shrink import Shrinker, ShrinkStep
from tests.sim.mutants import MUTANTS
from tests.sim.planting import planted

PLANNED = 10


def result(
    invariant: str | None, scope: RunScope = FULL_RUN, planned: int = PLANNED, kind: ProfileKind = ProfileKind.STANDARD
) -> RunResult:
    """Return the result of a run of seed 9, whose plan has the faults 0 to ``planned`` - 1."""
    plan = tuple(
        Fault(number=n, kind=FaultKind.CRASH, at_us=n, victim=0, duration_us=1, amount=0)
        for n in range(planned)
        if scope.faults is None or n in scope.faults
    )
    violation = Violation(invariant=invariant, detail="", at_us=0) if invariant else None
    return RunResult(
        seed=9,
        kind=kind,
        scope=scope,
        events=1,
        virtual_us=1,
        digest="",
        plan=plan,
        writes_acknowledged=0,
        violation=violation,
        coverage={},
    )


def within(limit: int | None, least: int) -> bool:
    """Return true if a limit allows at least ``least``."""
    return limit is None or limit >= least


def test_only_the_faults_that_cause_the_violation_remain() -> None:
    def rerun(scope: RunScope) -> RunResult:
        fails = scope.faults is not None and scope.faults >= {3, 7} and within(scope.operations_max, 64)
        return result("log_matching" if fails else None, scope)

    shrunk = Shrinker(result("log_matching"), rerun).shrink()
    assert shrunk.result.scope == RunScope(faults=frozenset({3, 7}), operations_max=64)
    assert [fault.number for fault in shrunk.result.plan] == [3, 7]
    assert shrunk.result.violation is not None


def test_a_run_that_violates_another_invariant_is_not_a_reproduction() -> None:
    failed = result("log_matching")
    shrunk = Shrinker(failed, lambda scope: result("election_safety", scope)).shrink()
    assert shrunk.result == failed


def test_shrinking_takes_a_bounded_number_of_runs() -> None:
    calls = 0

    def rerun(scope: RunScope) -> RunResult:
        nonlocal calls
        calls += 1
        return result(None, scope, planned=30)

    shrunk = Shrinker(result("log_matching", planned=30), rerun, runs_max=12).shrink()
    assert calls == shrunk.runs == 12


def test_each_run_of_the_search_is_reported() -> None:
    steps: list[ShrinkStep] = []

    def rerun(scope: RunScope) -> RunResult:
        fails = scope.faults is not None and 1 in scope.faults and scope.operations_max is None
        return result("log_matching" if fails else None, scope, planned=2)

    Shrinker(result("log_matching", planned=2), rerun, on_step=steps.append).shrink()
    none, one = frozenset[int](), frozenset({1})
    assert steps == [
        ShrinkStep(1, 0, RunScope(faults=none), smaller=False),
        ShrinkStep(2, 1, RunScope(faults=one), smaller=True),
        ShrinkStep(3, 0, RunScope(faults=none), smaller=False),
        ShrinkStep(4, 1, RunScope(faults=one, operations_max=256), smaller=False),
    ]


def test_a_limit_on_operations_is_only_lowered() -> None:
    def rerun(scope: RunScope) -> RunResult:
        return result("log_matching" if within(scope.operations_max, 5) else None, scope)

    shrunk = Shrinker(result("log_matching", RunScope(operations_max=40), planned=0), rerun).shrink()
    assert shrunk.result.scope.operations_max == 5


@pytest.mark.parametrize(
    ("before", "needed", "after"), [(None, 9, 16), (None, 200, None), (40, 5, 5), (None, 1, 1), (0, 0, 0), (5, 0, 0)]
)
def test_changes_of_members_are_dropped_after_operations(before: int | None, needed: int, after: int | None) -> None:
    tried: list[RunScope] = []

    def rerun(scope: RunScope) -> RunResult:
        tried.append(scope)
        fails = within(scope.operations_max, 64) and within(scope.changes_max, needed)
        return result("log_matching" if fails else None, scope, planned=0, kind=ProfileKind.MEMBERSHIP)

    failed = result("log_matching", RunScope(changes_max=before), planned=0, kind=ProfileKind.MEMBERSHIP)
    shrunk = Shrinker(failed, rerun).shrink()
    assert shrunk.result.scope == RunScope(operations_max=64, changes_max=after)
    assert [scope.operations_max for scope in tried[:4]] == [256, 128, 64, 32]
    assert {scope.operations_max for scope in tried[4:]} <= {64}


def test_changes_of_members_are_not_limited_where_members_are_fixed() -> None:
    tried: list[RunScope] = []

    def rerun(scope: RunScope) -> RunResult:
        tried.append(scope)
        return result("log_matching", scope)

    Shrinker(result("log_matching"), rerun).shrink()
    assert {scope.changes_max for scope in tried} == {None}


def test_a_run_without_a_violation_cannot_be_shrunk() -> None:
    with pytest.raises(ValueError, match="no violation"):
        Shrinker(result(None), lambda scope: result(None, scope))


def test_a_planted_bug_shrinks_to_a_run_that_still_shows_it() -> None:
    mutant = next(m for m in MUTANTS if "without a sync" in m.name or "not synced" in m.name)
    with planted(mutant):
        failed = run_seed(mutant.seed)
        shrunk = Shrinker(failed, lambda scope: run_seed(failed.seed, scope=scope), runs_max=20).shrink()
        again = run_seed(failed.seed, scope=shrunk.result.scope)
    assert failed.violation is not None
    assert again.violation == shrunk.result.violation
    assert again.violation is not None
    assert again.violation.invariant == mutant.invariant
    assert len(shrunk.result.plan) < len(failed.plan)


def test_the_commands_name_the_faults_operations_and_changes_that_remain() -> None:
    full = result("log_matching")
    assert reproduce_command(full) == "stelae sim run --seed 9"
    some = result("log_matching", RunScope(faults=frozenset({4, 1}), operations_max=16))
    assert reproduce_command(some) == "stelae sim run --seed 9 --faults 1,4 --operations-max 16"
    assert show_command(some) == "stelae sim show 9 --faults 1,4 --operations-max 16"
    assert shrink_command(some) == "stelae sim shrink 9 --faults 1,4 --operations-max 16"
    none = RunScope(faults=frozenset(), changes_max=0)
    of_members = result("log_matching", none, kind=ProfileKind.MEMBERSHIP)
    assert reproduce_command(of_members) == "stelae sim run --seed 9 --profile membership --faults none --changes-max 0"
    assert show_command(of_members) == "stelae sim show 9 --profile membership --faults none --changes-max 0"
    assert shrink_command(of_members) == "stelae sim shrink 9 --profile membership --faults none --changes-max 0"
