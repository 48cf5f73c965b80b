"""Shrinks a failing run: fewer faults and fewer operations that still violate the same invariant.

The shrinker leaves out all faults, then halves, quarters, and so on down to single faults, and keeps
each smaller plan that still violates the same invariant. Then it halves the limit on operations while
the violation remains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from stelae.sim.report import RunResult

Rerun: TypeAlias = Callable[[frozenset[int], int | None], RunResult]
"""Run the seed again with only these faults and at most this number of operations per client."""

RUNS_MAX = 200
"""Limit on the runs of one shrinking."""

OPERATIONS_MAX = 256
"""First limit on operations that the search tries."""


@dataclass(frozen=True, slots=True)
class ShrinkStep:
    """One run of the search.

    Attributes:
        runs: number of runs so far, this one included.
        faults: number of faults in this run.
        operations_max: limit on the operations of each client in this run; ``None`` for no limit.
        smaller: true if the run violates the same invariant. The search continues from it.
    """

    runs: int
    faults: int
    operations_max: int | None
    smaller: bool


@dataclass(frozen=True, slots=True)
class ShrinkResult:
    """The smallest failing run that was found, and the arguments that reproduce it.

    Attributes:
        faults: numbers of the planned faults that remain.
        operations_max: limit on the operations of each client; ``None`` for no limit.
        runs: number of runs that the shrinking took.
    """

    result: RunResult
    faults: tuple[int, ...]
    operations_max: int | None
    runs: int


class Shrinker:
    """Shrinks one failing run.

    Args:
        failed: the result of the full run.
        rerun: repeats the run with fewer faults and operations.
        runs_max: limit on the number of runs.
        operations_max: limit on the operations of each client in the full run; ``None`` for no limit.
        on_step: called after each run.
    """

    def __init__(
        self,
        failed: RunResult,
        rerun: Rerun,
        runs_max: int = RUNS_MAX,
        *,
        operations_max: int | None = None,
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
        self._faults = tuple(fault.number for fault in failed.plan)
        self._operations_max = operations_max

    def shrink(self) -> ShrinkResult:
        """Return the smallest failing run found within the limit on runs."""
        self._drop_faults()
        self._drop_operations()
        return ShrinkResult(self._best, self._faults, self._operations_max, self._runs)

    def _drop_faults(self) -> None:
        size = max(1, len(self._faults))
        while size >= 1 and self._faults:
            at = 0
            while at < len(self._faults):
                faults = self._faults[:at] + self._faults[at + size :]
                if not self._still_fails(faults, self._operations_max):
                    at += size
            size //= 2

    def _drop_operations(self) -> None:
        """Halve the limit on operations while the violation remains."""
        bound = OPERATIONS_MAX if self._operations_max is None else min(OPERATIONS_MAX, self._operations_max // 2)
        while bound >= 1 and self._still_fails(self._faults, bound):
            bound //= 2

    def _still_fails(self, faults: tuple[int, ...], operations_max: int | None) -> bool:
        if self._runs_left == 0:
            return False
        self._runs_left -= 1
        self._runs += 1
        result = self._rerun(frozenset(faults), operations_max)
        smaller = result.violation is not None and result.violation.invariant == self._invariant
        if smaller:
            self._best, self._faults, self._operations_max = result, faults, operations_max
        self._on_step(ShrinkStep(self._runs, len(faults), operations_max, smaller))
        return smaller
