"""How fast work goes and how long it may still take."""

from __future__ import annotations

from collections import deque

WINDOW_S = 10.0
"""Seconds over which the rate is taken: long enough to be calm, short enough to follow."""


class Pace:
    """Rate and time left, from what is told.

    Args:
        now_s: seconds on a clock that never goes back.
        before: rows that were done before, and took no time of this run.
    """

    def __init__(self, now_s: float, before: int = 0) -> None:
        self._began_s = now_s
        self._before = before
        self._points: deque[tuple[float, int]] = deque([(now_s, 0)])
        self._latest_s = now_s
        self.fraction = 0.0
        self.rows = 0

    def note(self, now_s: float, rows: int, fraction: float) -> None:
        """So many rows are done in this run, and so much of the whole."""
        self.rows, self.fraction, self._latest_s = rows, fraction, now_s
        self._points.append((now_s, rows))
        while now_s - self._points[0][0] > WINDOW_S and len(self._points) > 2:
            self._points.popleft()

    @property
    def rows_per_s(self) -> float:
        """Rows each second, of late; 0: nothing is known."""
        (then_s, before), (now_s, rows) = self._points[0], self._points[-1]
        return (rows - before) / (now_s - then_s) if now_s > then_s else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest may take; ``None``: nothing is known."""
        if not self.rows or not self.fraction:
            return None
        mine = self.fraction * self.rows / (self._before + self.rows)
        return max(0.0, (1.0 - self.fraction) * (self._latest_s - self._began_s) / mine)

    def without_end(self) -> str:
        """Return the line of work whose end nobody knows."""
        return f"{self.rows:,} rows, {self.rows_per_s:,.0f} rows/s"

    def __str__(self) -> str:
        left = "" if self.left_s is None else f", about {clock(self.left_s)} left"
        return f"{self.rows:,} rows, {self.fraction:.0%}, {self.rows_per_s:,.0f} rows/s{left}"


def clock(seconds: float) -> str:
    """Return a span as ``5 s``, ``3:07`` or ``1:02:03``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
