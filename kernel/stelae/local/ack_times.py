"""Records the times of acknowledgements. The gaps between them are how users notice a failure."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable


class AckTimes:
    """The times of the acknowledgements of one tablet, in seconds of a monotonic clock.

    Args:
        now: returns the time of the clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._times: list[float] = []
        self._complete = False

    def note(self, *, last: bool = False) -> None:
        """Record an acknowledgement now. After the ``last`` one, no more are expected."""
        self._times.append(self._now())
        self._complete = last

    def longest_gap_ms(self, since: float, until: float) -> float:
        """Return the longest time without an acknowledgement between two times, in milliseconds.

        Args:
            since: the first gap begins at the last acknowledgement before this time.
            until: the last gap ends at this time, unless the last acknowledgement came before it.
        """
        first = max(0, bisect_left(self._times, since) - 1)
        inside = [at for at in self._times[first:] if at <= until]
        edges = inside or [since]
        if not self._complete or len(inside) < len(self._times) - first:
            edges = [*edges, until]
        return max((later - sooner for sooner, later in itertools.pairwise(edges)), default=0.0) * 1000
