"""The results of runs: one seed's result, the totals of many seeds, and their output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stelae.sim.coverage import Coverage
from stelae.sim.fault_plan import LEADER, Fault
from stelae.sim.invariants import Violation
from stelae.sim.profile import ProfileKind
from stelae.sim.run_scope import FULL_RUN, RunScope


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one seed.

    Attributes:
        kind: whether members changed.
        scope: the faults, operations and changes that the run kept.
        events: number of events that ran.
        virtual_us: virtual time that passed, in microseconds.
        digest: equal for two runs only if the same events ran in the same order.
        plan: the faults that were scheduled.
        writes_acknowledged: number of acknowledged writes.
    """

    seed: int
    kind: ProfileKind = ProfileKind.STANDARD
    scope: RunScope = FULL_RUN
    events: int
    virtual_us: int
    digest: str
    plan: tuple[Fault, ...]
    writes_acknowledged: int
    violation: Violation | None
    coverage: dict[str, int]


class RunTotals:
    """The totals of many runs."""

    def __init__(self) -> None:
        self.seeds = 0
        self.events = 0
        self.writes_acknowledged = 0
        self.failed: list[RunResult] = []
        self._coverage = Coverage()

    def add(self, result: RunResult) -> None:
        """Add the result of one run."""
        self.seeds += 1
        self.events += result.events
        self.writes_acknowledged += result.writes_acknowledged
        self._coverage.counts.update(result.coverage)
        if result.violation is not None:
            self.failed.append(result)

    def coverage(self) -> dict[str, int]:
        """Return all coverage counts, by name."""
        return self._coverage.as_dict()

    def as_document(self) -> dict[str, Any]:
        """Return the document that ``stelae sim run --json`` prints."""
        return {
            "seeds": self.seeds,
            "events": self.events,
            "writes_acknowledged": self.writes_acknowledged,
            "violations": [_violation(result) for result in self.failed],
            "coverage": self.coverage(),
        }


def reproduce_command(result: RunResult) -> str:
    """Return the command that repeats a run."""
    return f"stelae sim run --seed {result.seed}{_options(result.kind, result.scope)}"


def show_command(result: RunResult) -> str:
    """Return the command that shows the trace of a run."""
    return f"stelae sim show {result.seed}{_options(result.kind, result.scope)}"


def shrink_command(result: RunResult) -> str:
    """Return the command that searches for a smaller run that violates the same invariant."""
    return f"stelae sim shrink {result.seed}{_options(result.kind, result.scope)}"


def find_command(kind: ProfileKind) -> str:
    """Return a command that searches for a seed of these runs that violates an invariant."""
    return f"stelae sim run --seeds 1..1000{_options(kind, FULL_RUN)}"


def _options(kind: ProfileKind, scope: RunScope) -> str:
    options = "" if kind is ProfileKind.STANDARD else f" --profile {kind}"
    if scope.faults is not None:
        options += f" --faults {','.join(str(number) for number in sorted(scope.faults)) or 'none'}"
    if scope.operations_max is not None:
        options += f" --operations-max {scope.operations_max}"
    if scope.changes_max is not None:
        options += f" --changes-max {scope.changes_max}"
    return options


def describe_plan(plan: Sequence[Fault]) -> list[str]:
    """Return one line for each fault, in order of time."""
    lines = []
    for fault in plan:
        victim = "the leader" if fault.victim == LEADER else f"node {fault.victim}"
        lines.append(
            f"  {fault.number:3d}  at {fault.at_us / 1e6:7.3f} s  {fault.kind:16s} {victim}, "
            f"for {fault.duration_us / 1e6:.3f} s, amount {fault.amount}"
        )
    return lines


def _violation(result: RunResult) -> dict[str, Any]:
    violation = result.violation
    assert violation is not None
    return {
        "seed": result.seed,
        "invariant": violation.invariant,
        "detail": violation.detail,
        "at_us": violation.at_us,
        "reproduce": reproduce_command(result),
        "show": show_command(result),
    }
