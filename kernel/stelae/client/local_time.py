"""Time, and nowhere to count, for a process that is not a node."""

from __future__ import annotations

import time


class WallClock:
    """``Clock`` of the machine."""

    def monotonic_us(self) -> int:
        """Microseconds on a clock that never goes back."""
        return time.monotonic_ns() // 1000

    def wall_us(self) -> int:
        """Microseconds since the Unix epoch."""
        return time.time_ns() // 1000


class LocalTime:
    """A client's hybrid timestamps: they carry on what nodes said and promise nothing durable."""

    def __init__(self) -> None:
        self._seen = 0

    def now(self) -> int:
        """What was seen last: a client must not drag nodes along by a clock of its own."""
        return self._seen

    def observe(self, timestamp: int) -> None:
        """Take note of a node's time."""
        self._seen = max(self._seen, timestamp)


class QuietMetrics:
    """``Metrics`` that nobody reads."""

    def count(self, name: str, amount: int = 1) -> None:
        """Nothing is counted."""

    def gauge(self, name: str, value: float) -> None:
        """Nothing is kept."""
