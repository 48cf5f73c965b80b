"""The results of runs: one seed's result, the totals of many seeds, and their output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from stelae.sim.coverage import Coverage
from stelae.sim.fault_plan import LEADER, Fault
from stelae.sim.invariants import Violation
from stelae.sim.profile import ProfileKind


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one seed.

    Attributes:
        kind: whether members changed.
        events: number of events that ran.
        virtual_us: virtual time that passed, in microseconds.
        digest: equal for two runs only if the same events ran in the same order.
        plan: the faults that were scheduled.
        writes_acknowledged: number of acknowledged writes.
    """

    seed: int
    kind: ProfileKind = ProfileKind.STANDARD
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


def reproduce_command(
    seed: int,
    faults: Iterable[int] | None = None,
    operations_max: int | None = None,
    kind: ProfileKind = ProfileKind.STANDARD,
) -> str:
    """Return the command that repeats a run, with only the given faults and operations if the run was shrunk."""
    return f"stelae sim run --seed {seed}{_options(faults, operations_max, kind)}"


def show_command(
    seed: int,
    faults: Iterable[int] | None = None,
    operations_max: int | None = None,
    kind: ProfileKind = ProfileKind.STANDARD,
) -> str:
    """Return the command that shows the trace of the run that ``reproduce_command`` repeats."""
    return f"stelae sim show {seed}{_options(faults, operations_max, kind)}"


def shrink_command(
    seed: int,
    faults: Iterable[int] | None = None,
    operations_max: int | None = None,
    kind: ProfileKind = ProfileKind.STANDARD,
) -> str:
    """Return the command that searches for a smaller run than ``reproduce_command`` repeats."""
    return f"stelae sim shrink {seed}{_options(faults, operations_max, kind)}"


def find_command(kind: ProfileKind) -> str:
    """Return a command that searches for a seed of these runs that violates an invariant."""
    return f"stelae sim run --seeds 1..1000{_options(None, None, kind)}"


def _options(faults: Iterable[int] | None, operations_max: int | None, kind: ProfileKind) -> str:
    options = "" if kind is ProfileKind.STANDARD else f" --profile {kind}"
    if faults is not None:
        options += f" --faults {','.join(str(number) for number in faults) or 'none'}"
    if operations_max is not None:
        options += f" --operations-max {operations_max}"
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
        "reproduce": reproduce_command(result.seed, kind=result.kind),
        "show": show_command(result.seed, kind=result.kind),
    }
