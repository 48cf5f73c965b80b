"""The keys with a version in memory, and whether the newest version of each is a deletion.

Keys that arrive in ascending order, between all other keys, are noted only as a range. So loading rows in key order
creates no Python object for each key. A range is expanded into entries of the dict when other keys fall into it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from stelae.rows.key_order import Comparable

ENTRY_BYTES = 120  #: Memory of a key in the dict.
_TURN_ROWS = 8192  #: Keys that are converted to Python in one call, during which the interpreter lock is held.


class NewestVersions:
    """The newest version of each key in memory. Only the applying thread uses it."""

    def __init__(self) -> None:
        self._live: dict[Comparable, bool] = {}
        self._bounds: tuple[Comparable, Comparable] | None = None
        self._firsts: list[Comparable] = []
        self._lasts: list[Comparable] = []
        self._ranges: list[Any] = []
        self._longest = 0

    @property
    def size_bytes(self) -> int:
        """Approximate memory."""
        return ENTRY_BYTES * len(self._live)

    @property
    def longest_range(self) -> int:
        """The largest number of keys that were noted as one range, and so may have to be expanded in one call."""
        return self._longest

    def is_gap(self, first: Comparable, last: Comparable) -> bool:
        """Return true if certainly no key is from ``first`` to ``last``."""
        if self._bounds is not None and first <= self._bounds[1] and last >= self._bounds[0]:
            return False
        position = bisect_left(self._lasts, first)
        return position == len(self._firsts) or bool(self._firsts[position] > last)

    def add_range(self, first: Comparable, last: Comparable, keys: Any) -> None:
        """Note rows whose keys strictly ascend and lie between all other keys."""
        position = bisect_left(self._firsts, first)
        self._firsts.insert(position, first)
        self._lasts.insert(position, last)
        self._ranges.insert(position, keys)
        self._longest = max(self._longest, len(keys))

    def put(self, keys: Sequence[Comparable], low: Comparable, high: Comparable, live: bool) -> int:
        """Note newest versions. ``low`` is the smallest of their keys, ``high`` the largest.

        Returns the number of them that supersede another version in memory."""
        self._expand_ranges(keys, low, high)
        before = len(self._live)
        self._live.update(dict.fromkeys(keys, live))
        self._extend_bounds(low, high)
        return len(keys) - (len(self._live) - before)

    def find(self, keys: Sequence[Comparable]) -> list[bool | None]:
        """Return for each key whether its newest version is a row; ``None``: it has no version in memory."""
        if self._firsts:
            self._expand_ranges(keys, min(keys), max(keys))
        return [*map(self._live.get, keys)]

    def _expand_ranges(self, keys: Sequence[Comparable], low: Comparable, high: Comparable) -> None:
        """Expand the ranges into which some keys fall."""
        start, end = bisect_left(self._lasts, low), bisect_right(self._firsts, high)
        if start >= end:
            return
        ranges_hit = set()
        if end - start < len(keys):
            ordered = sorted(keys)
            for position in range(start, end):
                found = bisect_left(ordered, self._firsts[position])
                if found < len(ordered) and ordered[found] <= self._lasts[position]:
                    ranges_hit.add(position)
        else:
            for key in keys:
                position = bisect_left(self._lasts, key)
                if position < end and self._firsts[position] <= key:
                    ranges_hit.add(position)
        for position in sorted(ranges_hit, reverse=True):
            self._extend_bounds(self._firsts.pop(position), self._lasts.pop(position))
            range_keys = self._ranges.pop(position)
            for turn in range(0, len(range_keys), _TURN_ROWS):
                self._live.update(dict.fromkeys(range_keys.slice(turn, _TURN_ROWS).to_pylist(), True))

    def _extend_bounds(self, low: Comparable, high: Comparable) -> None:
        bounds = self._bounds
        self._bounds = (low, high) if bounds is None else (min(low, bounds[0]), max(high, bounds[1]))
