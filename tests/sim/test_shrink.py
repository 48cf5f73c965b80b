"""A failing run is shrunk, and the smaller run violates the same invariant."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from stelae.sim.fault_plan import Fault, FaultKind
from stelae.sim.invariants import Violation
from stelae.sim.report import RunResult, reproduce_command, show_command, shrink_command
from stelae.sim.run import run_seed
from stelae.sim.shrink import Shrinker, ShrinkStep
from tests.sim.mutants import MUTANTS
from tests.sim.planting import planted


def result(faults: Iterable[int], invariant: str | None) -> RunResult:
    plan = tuple(
        Fault(number=n, kind=FaultKind.CRASH, at_us=n, victim=0, duration_us=1, amount=0) for n in sorted(faults)
    )
    violation = Violation(invariant=invariant, detail="", at_us=0) if invariant else None
    return RunResult(
        seed=9, events=1, virtual_us=1, digest="", plan=plan, writes_acknowledged=0, violation=violation, coverage={}
    )


def test_only_the_faults_that_cause_the_violation_remain() -> None:
    def rerun(faults: frozenset[int], operations_max: int | None) -> RunResult:
        fails = faults >= {3, 7} and (operations_max is None or operations_max >= 64)
        return result(faults, "log_matching" if fails else None)

    shrunk = Shrinker(result(range(10), "log_matching"), rerun).shrink()
    assert shrunk.faults == (3, 7)
    assert shrunk.operations_max == 64
    assert shrunk.result.violation is not None


def test_a_run_that_violates_another_invariant_is_not_a_reproduction() -> None:
    def rerun(faults: frozenset[int], operations_max: int | None) -> RunResult:
        return result(faults, "election_safety")

    shrunk = Shrinker(result(range(4), "log_matching"), rerun).shrink()
    assert shrunk.faults == (0, 1, 2, 3)


def test_shrinking_takes_a_bounded_number_of_runs() -> None:
    calls = 0

    def rerun(faults: frozenset[int], operations_max: int | None) -> RunResult:
        nonlocal calls
        calls += 1
        return result(faults, None)

    shrunk = Shrinker(result(range(30), "log_matching"), rerun, runs_max=12).shrink()
    assert calls == shrunk.runs == 12


def test_each_run_of_the_search_is_reported() -> None:
    steps: list[ShrinkStep] = []

    def rerun(faults: frozenset[int], operations_max: int | None) -> RunResult:
        return result(faults, "log_matching" if 1 in faults and operations_max is None else None)

    Shrinker(result(range(2), "log_matching"), rerun, on_step=steps.append).shrink()
    assert steps == [
        ShrinkStep(1, 0, None, smaller=False),
        ShrinkStep(2, 1, None, smaller=True),
        ShrinkStep(3, 0, None, smaller=False),
        ShrinkStep(4, 1, 256, smaller=False),
    ]


def test_a_limit_on_operations_is_only_lowered() -> None:
    def rerun(faults: frozenset[int], operations_max: int | None) -> RunResult:
        return result(faults, "log_matching" if operations_max is not None and operations_max >= 5 else None)

    shrunk = Shrinker(result((), "log_matching"), rerun, operations_max=40).shrink()
    assert shrunk.operations_max == 5


def test_a_run_without_a_violation_cannot_be_shrunk() -> None:
    with pytest.raises(ValueError, match="no violation"):
        Shrinker(result(range(2), None), lambda _faults, _operations: result((), None))


def test_a_planted_bug_shrinks_to_a_run_that_still_shows_it() -> None:
    mutant = next(m for m in MUTANTS if "without a sync" in m.name or "not synced" in m.name)
    with planted(mutant):
        failed = run_seed(mutant.seed)

        def rerun(faults: frozenset[int], operations_max: int | None) -> RunResult:
            return run_seed(failed.seed, faults=faults, operations_max=operations_max)

        shrunk = Shrinker(failed, rerun, runs_max=20).shrink()
        again = run_seed(failed.seed, faults=frozenset(shrunk.faults), operations_max=shrunk.operations_max)
    assert failed.violation is not None
    assert again.violation == shrunk.result.violation
    assert again.violation is not None
    assert again.violation.invariant == mutant.invariant
    assert len(shrunk.faults) < len(failed.plan)


def test_the_reproduce_command_names_the_faults_and_operations_that_remain() -> None:
    assert reproduce_command(7) == "stelae sim run --seed 7"
    assert reproduce_command(7, (1, 4), 16) == ("stelae sim run --seed 7 --faults 1,4 --operations-max 16")
    assert show_command(7, (1, 4), 16) == "stelae sim show 7 --faults 1,4 --operations-max 16"
    assert shrink_command(7, (1, 4), 16) == "stelae sim shrink 7 --faults 1,4 --operations-max 16"
    assert reproduce_command(7, ()) == "stelae sim run --seed 7 --faults none"
