"""Makes a failing run small: fewer faults, fewer operations, the same invariant.

Faults are left out in halves, then in quarters, and so on down to one by one, for as long as the
same invariant is still reported; then the number of operations is lowered in the same manner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from stelae.sim.report import RunResult

Rerun: TypeAlias = Callable[[frozenset[int], int | None], RunResult]
"""Run the seed again with only these faults and at most so many operations per client."""

RUNS_MAX = 200
"""Runs that one shrinking may cost."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest failing run found, and what it is reproduced with."""

    result: RunResult
    faults: tuple[int, ...]
    operations_max: int | None
    runs: int


class Shrinker:
    """Shrinks one failing run.

    Args:
        failed: the run as drawn.
        rerun: repeats it in part.
        runs_max: how often.
    """

    def __init__(self, failed: RunResult, rerun: Rerun, runs_max: int = RUNS_MAX) -> None:
        if failed.violation is None:
            raise ValueError(f"seed {failed.seed} has no violation to shrink")
        self._invariant = failed.violation.invariant
        self._rerun = rerun
        self._runs_left = runs_max
        self._runs = 0
        self._best = failed
        self._faults = tuple(fault.number for fault in failed.plan)
        self._operations_max: int | None = None

    def shrink(self) -> Shrunk:
        """Return the smallest run found within the bound."""
        self._drop_faults()
        self._drop_operations()
        return Shrunk(self._best, self._faults, self._operations_max, self._runs)

    def _drop_faults(self) -> None:
        size = max(1, len(self._faults))
        while size >= 1 and self._faults:
            at = 0
            while at < len(self._faults):
                kept = self._faults[:at] + self._faults[at + size :]
                if not self._still_fails(kept, self._operations_max):
                    at += size
            size //= 2

    def _drop_operations(self) -> None:
        """Halve the bound on operations while the violation stands."""
        bound = 256
        while bound >= 1 and self._still_fails(self._faults, bound):
            bound //= 2

    def _still_fails(self, faults: tuple[int, ...], operations_max: int | None) -> bool:
        if self._runs_left == 0:
            return False
        self._runs_left -= 1
        self._runs += 1
        result = self._rerun(frozenset(faults), operations_max)
        if result.violation is None or result.violation.invariant != self._invariant:
            return False
        self._best, self._faults, self._operations_max = result, faults, operations_max
        return True
