"""Which keys have a version in memory, and whether the newest one is a deletion.

Keys that come in as a rising run, in a gap between all others, are only noted as a range: whoever loads rows in key
order never turns a key into Python. A range becomes entries of the dict when another batch meets it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from stelae.rows.key_order import Comparable

ENTRY_BYTES = 120  #: What a key costs in the dict: its slots, and itself.
_TURN_ROWS = 8192  #: Keys turned into Python at a time, holding the interpreter.


class NewestVersions:
    """What is known of keys in memory. Used by the applying thread alone."""

    def __init__(self) -> None:
        self._live: dict[Comparable, bool] = {}
        self._bounds: tuple[Comparable, Comparable] | None = None
        self._firsts: list[Comparable] = []
        self._lasts: list[Comparable] = []
        self._runs: list[Any] = []
        self._longest = 0

    @property
    def size_bytes(self) -> int:
        """Memory held, about."""
        return ENTRY_BYTES * len(self._live)

    @property
    def longest_run(self) -> int:
        """Most rows that were ever noted as one range: it is what may have to become entries at once."""
        return self._longest

    def is_gap(self, first: Comparable, last: Comparable) -> bool:
        """Whether certainly no key is from ``first`` to ``last``."""
        if self._bounds is not None and first <= self._bounds[1] and last >= self._bounds[0]:
            return False
        place = bisect_left(self._lasts, first)
        return place == len(self._firsts) or bool(self._firsts[place] > last)

    def add_run(self, first: Comparable, last: Comparable, keys: Any) -> None:
        """Take note of rows with strictly rising keys in a gap."""
        place = bisect_left(self._firsts, first)
        self._firsts.insert(place, first)
        self._lasts.insert(place, last)
        self._runs.insert(place, keys)
        self._longest = max(self._longest, len(keys))

    def put(self, keys: Sequence[Comparable], low: Comparable, high: Comparable, live: bool) -> int:
        """Take note of newest versions, the least key being ``low`` and the greatest ``high``.

        Returns how many of them supersede another one in memory."""
        self._thaw(keys, low, high)
        before = len(self._live)
        self._live.update(dict.fromkeys(keys, live))
        self._widen(low, high)
        return len(keys) - (len(self._live) - before)

    def find(self, keys: Sequence[Comparable]) -> list[bool | None]:
        """Say of each key whether its newest version is a row; ``None``: it has none in memory."""
        if self._firsts:
            self._thaw(keys, min(keys), max(keys))
        return [*map(self._live.get, keys)]

    def _thaw(self, keys: Sequence[Comparable], low: Comparable, high: Comparable) -> None:
        """Turn the ranges that some keys meet into entries of the dict."""
        start, end = bisect_left(self._lasts, low), bisect_right(self._firsts, high)
        if start >= end:
            return
        met = set()
        if end - start < len(keys):
            ordered = sorted(keys)
            for place in range(start, end):
                found = bisect_left(ordered, self._firsts[place])
                if found < len(ordered) and ordered[found] <= self._lasts[place]:
                    met.add(place)
        else:
            for key in keys:
                place = bisect_left(self._lasts, key)
                if place < end and self._firsts[place] <= key:
                    met.add(place)
        for place in sorted(met, reverse=True):
            self._widen(self._firsts.pop(place), self._lasts.pop(place))
            run = self._runs.pop(place)
            for turn in range(0, len(run), _TURN_ROWS):
                self._live.update(dict.fromkeys(run.slice(turn, _TURN_ROWS).to_pylist(), True))

    def _widen(self, low: Comparable, high: Comparable) -> None:
        bounds = self._bounds
        self._bounds = (low, high) if bounds is None else (min(low, bounds[0]), max(high, bounds[1]))
