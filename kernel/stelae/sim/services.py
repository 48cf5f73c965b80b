"""What engines are handed in a simulation: the virtual disk and clock, counters, and workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stelae.sim.coverage import Coverage
from stelae.sim.process import VirtualPool


class CountedMetrics:
    """``Metrics`` into the coverage of the run, as ``metric.<name>``."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        self._coverage.counts[f"metric.{name}"] += amount

    def gauge(self, name: str, value: float) -> None:
        """Gauges say nothing about a run as a whole; they are dropped."""

    def histogram(self, name: str) -> Callable[[int], None]:
        """Nor do durations in a world where nothing takes time by itself."""
        return lambda _value: None


class VirtualWorkers:
    """``Workers`` on a virtual pool: each piece of work is independent of the others."""

    def __init__(self, pool: VirtualPool) -> None:
        self._pool = pool
        self._pieces = 0

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None] | None = None) -> None:
        """Run ``work`` after a drawn delay, then ``done`` on the loop."""
        self._pieces += 1
        self._pool.run(f"worker/{self._pieces}", work, done or (lambda _result: None))
