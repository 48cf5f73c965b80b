"""Rate of work and estimate of the remaining time."""

from __future__ import annotations

from collections import deque

WINDOW_S = 10.0
"""Seconds over which the rate is averaged: long enough to be steady, short enough to follow changes."""


class Pace:
    """Computes the rate and the remaining time from progress reports.

    Args:
        now_s: the present time of a monotonic clock, in seconds.
        before: rows that an earlier run has done.

    Attributes:
        rows: rows done in this run.
        fraction: the fraction of the whole work that is done, from 0 to 1.
    """

    def __init__(self, now_s: float, before: int = 0) -> None:
        self._began_s = now_s
        self._before = before
        self._points: deque[tuple[float, int]] = deque([(now_s, 0)])
        self._latest_s = now_s
        self.fraction = 0.0
        self.rows = 0

    def note(self, now_s: float, rows: int, fraction: float) -> None:
        """Record the rows done in this run and the fraction of the whole work."""
        self.rows, self.fraction, self._latest_s = rows, fraction, now_s
        self._points.append((now_s, rows))
        while now_s - self._points[0][0] > WINDOW_S and len(self._points) > 2:
            self._points.popleft()

    @property
    def rows_per_s(self) -> float:
        """Return the recent rate in rows per second, or 0 before it is known."""
        (then_s, before), (now_s, rows) = self._points[0], self._points[-1]
        return (rows - before) / (now_s - then_s) if now_s > then_s else 0.0

    @property
    def left_s(self) -> float | None:
        """Return an estimate of the remaining seconds, or ``None`` before it is known."""
        if not self.rows or not self.fraction:
            return None
        fraction_of_this_run = self.fraction * self.rows / (self._before + self.rows)
        return max(0.0, (1.0 - self.fraction) * (self._latest_s - self._began_s) / fraction_of_this_run)

    def without_end(self) -> str:
        """Return the progress line of work whose total is unknown."""
        return f"{self.rows:,} rows, {self.rows_per_s:,.0f} rows/s"

    def __str__(self) -> str:
        left = "" if self.left_s is None else f", about {clock(self.left_s)} left"
        return f"{self.rows:,} rows, {self.fraction:.0%}, {self.rows_per_s:,.0f} rows/s{left}"


def clock(seconds: float) -> str:
    """Return a duration as ``5 s``, ``3:07`` or ``1:02:03``."""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    minutes, rest = divmod(total, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
