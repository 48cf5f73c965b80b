"""Time, and nowhere to count, for a process that is not a node."""

from __future__ import annotations

import time
from collections.abc import Callable


class WallClock:
    """``Clock`` of the machine."""

    def monotonic_us(self) -> int:
        """Microseconds on a clock that never goes back."""
        return time.monotonic_ns() // 1000

    def wall_us(self) -> int:
        """Microseconds since the Unix epoch."""
        return time.time_ns() // 1000


class NoTime:
    """A client's hybrid timestamps: none.

    A client that passed on the highest timestamp it has seen would carry the time of one node with
    a wrong clock to all others, and be refused by them. What depends on order names its snapshot."""

    @property
    def last(self) -> int:
        """Zero, as ``now``."""
        return 0

    def now(self) -> int:
        """Zero: below every timestamp of a node."""
        return 0

    def observe(self, timestamp: int) -> None:
        """Nothing is kept."""


class QuietMetrics:
    """``Metrics`` that nobody reads."""

    def count(self, name: str, amount: int = 1) -> None:
        """Nothing is counted."""

    def gauge(self, name: str, value: float) -> None:
        """Nothing is kept."""

    def histogram(self, name: str) -> Callable[[int], None]:
        """Nothing is kept."""
        return lambda _value: None
