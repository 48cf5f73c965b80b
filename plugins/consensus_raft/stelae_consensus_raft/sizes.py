"""Sizes of recent entries, so that windows can be kept in bytes without keeping entries."""

from __future__ import annotations

from bisect import bisect_right

ENTRIES_KEPT_MAX = 65_536
"""Entries whose sizes are remembered: bounds the memory that a dead peer could cost."""


class SizeLog:
    """Cumulated sizes of the newest entries; older ones are estimated.

    ``_sums[i]`` is the total size of the entries appended up to index ``_first - 1 + i``."""

    __slots__ = ("_estimate", "_first", "_sums")

    def __init__(self, last_index: int, estimate: int) -> None:
        self._estimate = estimate
        self._first = last_index + 1
        self._sums = [0]

    def append(self, size_bytes: int) -> None:
        """Note the size of the next entry."""
        self._sums.append(self._sums[-1] + size_bytes)
        if len(self._sums) > 2 * ENTRIES_KEPT_MAX:
            del self._sums[:ENTRIES_KEPT_MAX]
            self._first += ENTRIES_KEPT_MAX

    def cut(self, index: int) -> None:
        """Forget every entry at or above ``index``."""
        if index < self._first:
            self._first, self._sums = index, [0]
        else:
            del self._sums[index - self._first + 1 :]

    def between(self, after: int, last: int) -> int:
        """Size in bytes of the entries from ``after + 1`` to ``last``, estimated where unknown."""
        unknown = max(0, min(last, self._first - 1) - after)
        known_from = max(after, self._first - 1)
        known = (
            self._sums[last - self._first + 1] - self._sums[known_from - self._first + 1] if last > known_from else 0
        )
        return unknown * self._estimate + known

    def last_within(self, after: int, last: int, bytes_max: int) -> int:
        """The last index up to which the entries after ``after`` fit; at least one entry."""
        if self.between(after, last) <= bytes_max:
            return last
        unknown = max(0, self._first - 1 - after)
        if unknown * self._estimate > bytes_max:
            return max(after + 1, after + bytes_max // self._estimate)
        start = after + unknown
        base = self._sums[start - self._first + 1]
        room = bytes_max - unknown * self._estimate
        fits = bisect_right(self._sums, base + room) - 1 + self._first - 1
        return max(after + 1, min(last, fits))
