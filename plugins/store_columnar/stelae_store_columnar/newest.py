"""Which keys have a version in memory, and the number of the newest one.

Keys that come in as a rising run, in a gap between all others, are only noted as a range: whoever loads rows in key
order never turns a key into Python. A range becomes entries of the dict when another batch meets it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from stelae.rows.key_order import Comparable

GONE = -1  #: Stands for a deletion instead of a number.
ENTRY_BYTES = 150  #: What a key costs in the dict: its slots, itself, its number.
_TURN_ROWS = 8192  #: Keys turned into Python at a time, holding the interpreter.


class NewestVersions:
    """Numbers of versions by key. Used by the applying thread alone."""

    def __init__(self) -> None:
        self._newest: dict[Comparable, int] = {}
        self._bounds: tuple[Comparable, Comparable] | None = None
        self._firsts: list[Comparable] = []
        self._lasts: list[Comparable] = []
        self._runs: list[tuple[int, Any]] = []

    @property
    def size_bytes(self) -> int:
        """Memory held, about."""
        return ENTRY_BYTES * len(self._newest)

    def is_gap(self, first: Comparable, last: Comparable) -> bool:
        """Whether certainly no key is from ``first`` to ``last``."""
        place = bisect_right(self._lasts, first)
        if place and self._lasts[place - 1] == first:
            return False
        if place < len(self._firsts) and self._firsts[place] <= last:
            return False
        return self._bounds is None or last < self._bounds[0] or first > self._bounds[1]

    def add_run(self, first: Comparable, last: Comparable, base: int, keys: Any) -> None:
        """Take note of strictly rising keys in a gap, whose versions are numbered from ``base``."""
        place = bisect_left(self._firsts, first)
        self._firsts.insert(place, first)
        self._lasts.insert(place, last)
        self._runs.insert(place, (base, keys))

    def put(self, keys: Sequence[Comparable], base: int, gone: bool) -> int:
        """Take note of versions numbered from ``base``; return how many supersede another one in memory."""
        self.thaw(keys)
        newest, before = self._newest, len(self._newest)
        if gone:
            newest.update(dict.fromkeys(keys, GONE))
        else:
            newest.update(zip(keys, range(base, base + len(keys)), strict=True))
        low, high = min(keys), max(keys)
        bounds = self._bounds
        self._bounds = (low, high) if bounds is None else (min(low, bounds[0]), max(high, bounds[1]))
        return len(keys) - (len(newest) - before)

    def find(self, keys: Sequence[Comparable]) -> list[int | None]:
        """Return the number of the newest version of each key, ``GONE``, or ``None``: not in memory."""
        self.thaw(keys)
        return [*map(self._newest.get, keys)]

    def thaw(self, keys: Sequence[Comparable]) -> None:
        """Turn the ranges that some keys meet into entries of the dict."""
        if not self._firsts:
            return
        met = set()
        for key in keys:
            place = bisect_right(self._firsts, key) - 1
            if place >= 0 and key <= self._lasts[place]:
                met.add(place)
        for place in sorted(met, reverse=True):
            base, run = self._runs.pop(place)
            low, high = self._firsts.pop(place), self._lasts.pop(place)
            bounds = self._bounds
            self._bounds = (low, high) if bounds is None else (min(low, bounds[0]), max(high, bounds[1]))
            for start in range(0, len(run), _TURN_ROWS):
                turned = run.slice(start, _TURN_ROWS).to_pylist()
                self._newest.update(zip(turned, range(base + start, base + start + len(turned)), strict=True))
