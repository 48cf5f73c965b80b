"""Sizes of recent entries: they limit the bytes in flight, without the entries in memory."""

from __future__ import annotations

from array import array
from bisect import bisect_right

ENTRIES_KEPT_MAX = 65_536
"""Minimum number of newest entries whose sizes are remembered; up to twice as many are. Bounds the memory of a log.

Each takes eight bytes, because a node may have thousands of logs."""


class EntrySizes:
    """Cumulative sizes of the newest entries, in bytes. The sizes of older entries are estimated.

    ``_first`` is the index of the oldest entry whose size is known. ``_sums[i]`` is the total size of the known entries
    up to index ``_first - 1 + i``, plus a constant."""

    __slots__ = ("_estimate", "_first", "_sums")

    def __init__(self, last_index: int, estimate: int) -> None:
        self._estimate = estimate
        self._first = last_index + 1
        self._sums = array("q", (0,))

    def append(self, size_bytes: int) -> None:
        """Add the size of the next entry."""
        self._sums.append(self._sums[-1] + size_bytes)
        if len(self._sums) > 2 * ENTRIES_KEPT_MAX:
            del self._sums[:ENTRIES_KEPT_MAX]
            self._first += ENTRIES_KEPT_MAX

    def cut(self, index: int) -> None:
        """Remove every entry at or above ``index``."""
        if index < self._first:
            self._first, self._sums = index, array("q", (0,))
        else:
            del self._sums[index - self._first + 1 :]

    def between(self, after: int, last: int) -> int:
        """Return the size in bytes of the entries from ``after + 1`` to ``last``, estimated where unknown."""
        unknown = max(0, min(last, self._first - 1) - after)
        known_from = max(after, self._first - 1)
        known = (
            self._sums[last - self._first + 1] - self._sums[known_from - self._first + 1] if last > known_from else 0
        )
        return unknown * self._estimate + known

    def last_within(self, after: int, last: int, bytes_max: int) -> int:
        """Return the last index up to which the entries after ``after`` fit; at least ``after + 1``."""
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
