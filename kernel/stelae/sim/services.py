"""The metrics and workers that engines get in a simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stelae.sim.coverage import Coverage
from stelae.sim.process import VirtualPool


class CoverageMetrics:
    """``Metrics`` that count into the coverage of the run, as ``metric.<name>``."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        self._coverage.counts[f"metric.{name}"] += amount

    def gauge(self, name: str, value: float) -> None:
        """Drop a gauge: it has no meaning for a whole run."""

    def histogram(self, name: str) -> Callable[[int], None]:
        """Return a histogram that drops its values: durations have no meaning in virtual time."""
        return lambda _value: None


class VirtualWorkers:
    """``Workers`` on a virtual pool. All pieces of work are independent of each other."""

    def __init__(self, pool: VirtualPool) -> None:
        self._pool = pool
        self._pieces = 0

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None] | None = None) -> None:
        """Run ``work`` after a drawn delay, then ``done`` on the loop."""
        self._pieces += 1
        self._pool.run(f"worker/{self._pieces}", work, done or (lambda _result: None))
