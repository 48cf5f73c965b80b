"""When acknowledgements came: gaps between them are what users feel of a failure."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable


class AckTimes:
    """Times of the acknowledgements of one tablet, in seconds of one monotonic clock.

    Args:
        now: the clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._times: list[float] = []
        self._complete = False

    def note(self, *, last: bool = False) -> None:
        """An acknowledgement has just come; after the ``last`` one none is waited for."""
        self._times.append(self._now())
        self._complete = last

    def longest_gap_ms(self, since: float, until: float) -> float:
        """The longest time without an acknowledgement that ends after ``since``, in milliseconds.

        Args:
            since: the last acknowledgement before it begins the first gap.
            until: gaps are looked for up to here; one that is still open then counts, unless nothing more was to come.
        """
        first = max(0, bisect_left(self._times, since) - 1)
        inside = [at for at in self._times[first:] if at <= until]
        edges = inside or [since]
        if not self._complete or len(inside) < len(self._times) - first:
            edges = [*edges, until]
        return max((later - sooner for sooner, later in itertools.pairwise(edges)), default=0.0) * 1000
