"""How busy a tablet server is, as masters weigh it: client operations per second."""

from __future__ import annotations

from collections import deque

WINDOW_US = 10_000_000
"""Long enough that a single batch does not make a server hot, short enough that yesterday's load does not."""


class LoadMeter:
    """Counts what clients ask for: each written operation, and each page of a scan. For one event loop."""

    def __init__(self) -> None:
        self._operations = 0
        self._readings: deque[tuple[int, int]] = deque()

    def add(self, operations: int) -> None:
        """Count operations."""
        self._operations += operations

    def per_s(self, now_us: int) -> float:
        """Operations per second since the reading before, at most ``WINDOW_US`` ago; asked for again and again."""
        readings = self._readings
        while len(readings) > 1 and readings[1][0] <= now_us - WINDOW_US:
            readings.popleft()
        readings.append((now_us, self._operations))
        since_us, before = readings[0]
        return (self._operations - before) * 1e6 / (now_us - since_us) if now_us > since_us else 0.0
