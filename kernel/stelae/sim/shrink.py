"""Shrinks a failing run: fewer faults, operations and member changes that still violate the same invariant.

The shrinker leaves out all faults, then halves, quarters, and so on down to single faults, and keeps
each smaller plan that still violates the same invariant. Then it halves the limit on operations while
the violation remains, and after that the limit on member changes, which may reach 0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from stelae.sim.profile import draw_profile
from stelae.sim.report import RunResult
from stelae.sim.run_scope import RunScope

Rerun: TypeAlias = Callable[[RunScope], RunResult]
"""Run the seed again with only this scope."""

RUNS_MAX = 200
"""Limit on the runs of one shrinking."""

OPERATIONS_MAX = 256
"""First limit on operations that the search tries."""

CHANGES_MAX = 128
"""First limit on member changes that the search tries. Most runs request fewer than 200."""


@dataclass(frozen=True, slots=True)
class ShrinkStep:
    """One run of the search.

    Attributes:
        runs: number of runs so far, this one included.
        faults: number of faults in this run.
        scope: what this run kept.
        smaller: true if the run violates the same invariant. The search continues from it.
    """

    runs: int
    faults: int
    scope: RunScope
    smaller: bool


@dataclass(frozen=True, slots=True)
class ShrinkResult:
    """The smallest failing run that was found.

    Attributes:
        result: the result of that run. ``scope`` and ``plan`` say what it kept.
        runs: number of runs that the shrinking took.
    """

    result: RunResult
    runs: int


class Shrinker:
    """Shrinks one failing run.

    Args:
        failed: the result of the full run. Its limits on operations and changes are only lowered.
        rerun: repeats the run with a smaller scope.
        runs_max: limit on the number of runs.
        on_step: called after each run.
    """

    def __init__(
        self,
        failed: RunResult,
        rerun: Rerun,
        runs_max: int = RUNS_MAX,
        *,
        on_step: Callable[[ShrinkStep], None] = lambda step: None,
    ) -> None:
        if failed.violation is None:
            raise ValueError(f"seed {failed.seed} has no violation to shrink")
        self._invariant = failed.violation.invariant
        self._rerun = rerun
        self._on_step = on_step
        self._runs_left = runs_max
        self._runs = 0
        self._best = failed

    def shrink(self) -> ShrinkResult:
        """Return the smallest failing run found within the limit on runs."""
        self._drop_faults()
        self._drop_operations()
        if changes_members(self._best):
            self._drop_changes()
        return ShrinkResult(self._best, self._runs)

    def _drop_faults(self) -> None:
        faults = [fault.number for fault in self._best.plan]
        size = max(1, len(faults))
        while size >= 1 and faults:
            at = 0
            while at < len(faults):
                fewer = faults[:at] + faults[at + size :]
                if self._still_fails(replace(self._best.scope, faults=frozenset(fewer))):
                    faults = fewer
                else:
                    at += size
            size //= 2

    def _drop_operations(self) -> None:
        """Halve the limit on operations while the violation remains."""
        bound = _first_limit(self._best.scope.operations_max, OPERATIONS_MAX)
        while bound >= 1 and self._still_fails(replace(self._best.scope, operations_max=bound)):
            bound //= 2

    def _drop_changes(self) -> None:
        """Halve the limit on member changes while the violation remains. The last limit is 0."""
        bound = _first_limit(self._best.scope.changes_max, CHANGES_MAX)
        while bound != self._best.scope.changes_max and self._still_fails(replace(self._best.scope, changes_max=bound)):
            bound //= 2

    def _still_fails(self, scope: RunScope) -> bool:
        if self._runs_left == 0:
            return False
        self._runs_left -= 1
        self._runs += 1
        result = self._rerun(scope)
        smaller = result.violation is not None and result.violation.invariant == self._invariant
        if smaller:
            self._best = result
        self._on_step(ShrinkStep(self._runs, len(result.plan), scope, smaller))
        return smaller


def changes_members(result: RunResult) -> bool:
    """Return true if members change in the full run of the seed."""
    return draw_profile(result.seed, result.kind).member_change_us is not None


def _first_limit(limit: int | None, first: int) -> int:
    """Return the first limit to try: ``first``, or half of the limit that the run had."""
    return first if limit is None else min(first, limit // 2)
