"""The replacements of the mutants in ``lease_mutants``. Each takes the original function first, then the arguments."""

from __future__ import annotations

from typing import Any

from tests.sim.mutations import Original


def never_end(original: Original, self: Any, now_us: int) -> bool:
    """A lease that was given once is valid as long as the leader believes to lead."""
    return bool(self._until_us)


def keep_over_handover(original: Original, self: Any) -> None:
    """A leader that has asked its successor to campaign goes on with its lease."""
