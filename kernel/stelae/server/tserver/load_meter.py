"""Measures the load of a tablet server in client operations per second. Masters compare servers by it."""

from __future__ import annotations

from collections import deque

WINDOW_US = 10_000_000
"""Time over which the rate is averaged. One large request must not make a server look busy, and load that ended
minutes ago must not count."""


class LoadMeter:
    """Counts operations of clients: each written operation and each page of a scan counts one. For one event loop."""

    def __init__(self) -> None:
        self.operations = 0  #: All that were counted.
        self._readings: deque[tuple[int, int]] = deque()

    def add(self, operations: int) -> None:
        """Count operations."""
        self.operations += operations

    def per_s(self, now_us: int) -> float:
        """Return the operations per second since the oldest reading of the last ``WINDOW_US``, and take a reading.

        The rate needs regular calls: the window consists of their readings."""
        readings = self._readings
        while len(readings) > 1 and readings[1][0] <= now_us - WINDOW_US:
            readings.popleft()
        readings.append((now_us, self.operations))
        since_us, operations_then = readings[0]
        return (self.operations - operations_then) * 1e6 / (now_us - since_us) if now_us > since_us else 0.0
