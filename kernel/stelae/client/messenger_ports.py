"""What a messenger needs, for a process that is not a node: a clock, hybrid timestamps and metrics."""

from __future__ import annotations

import time
from collections.abc import Callable

_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic_s() -> float:
    """Return seconds on a clock that never goes back and, where the system has one, runs through suspend."""
    return time.clock_gettime(_MONOTONIC)


class WallClock:
    """The clock of this machine. Implements ``Clock``."""

    def monotonic_us(self) -> int:
        """Return microseconds on the clock of ``monotonic_s``."""
        return time.clock_gettime_ns(_MONOTONIC) // 1000

    def wall_us(self) -> int:
        """Return microseconds since the Unix epoch."""
        return time.time_ns() // 1000


class NoTime:
    """The hybrid timestamps of a client: always zero.

    If a client sent the highest timestamp that it has received, it would spread the time of one node with a wrong clock
    to all other nodes, and they would refuse its messages. A read that depends on the order of writes names its
    snapshot instead."""

    @property
    def last(self) -> int:
        """Zero, as ``now``."""
        return 0

    def now(self) -> int:
        """Return zero, which is below every timestamp of a node."""
        return 0

    def observe(self, timestamp: int) -> None:
        """Ignore the timestamp."""


class QuietMetrics:
    """Metrics that are discarded. Implements ``Metrics``."""

    def count(self, name: str, amount: int = 1) -> None:
        """Do nothing."""

    def gauge(self, name: str, value: float) -> None:
        """Do nothing."""

    def histogram(self, name: str) -> Callable[[int], None]:
        """Return a function that does nothing."""
        return lambda _value: None
