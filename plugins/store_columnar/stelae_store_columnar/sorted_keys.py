"""Sorted comparables of one array, searched by halving without turning the array into Python."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import pyarrow as pa

from stelae.rows.key_order import Comparable

_SAMPLE_ROWS = 64  #: Of longer texts every so many-th is kept as Python; the rest is looked at when needed.


class SortedKeys:
    """Keys in order, repeated ones allowed. May be used by several threads."""

    __slots__ = ("_samples", "_words", "array")

    def __init__(self, array: Any) -> None:
        self.array = array
        self._words: memoryview | None = None
        self._samples: list[bytes] | None = None
        if array.type == pa.int64() and len(array):
            self._words = memoryview(array.buffers()[1]).cast("q")[array.offset : array.offset + len(array)]

    def __len__(self) -> int:
        return len(self.array)

    def at(self, place: int) -> Comparable:
        """Return one key."""
        return self.array[place].as_py()

    def find(self, key: Comparable) -> int:
        """Return the place of the first key equal to ``key``, -1 if there is none."""
        place = self.left(key, 0)
        if place == len(self.array):
            return -1
        return place if (self.at(place) if self._words is None else self._words[place]) == key else -1

    def left(self, key: Comparable | None, none: int) -> int:
        """Return the place of the first key at or above ``key``, the length if there is none; ``none`` for ``None``."""
        if key is None:
            return none
        if self._words is not None:
            return bisect_left(self._words, key)
        samples = self._samples
        if samples is None:
            places = pa.array(range(0, len(self.array), _SAMPLE_ROWS), pa.int64())
            samples = self._samples = self.array.take(places).to_pylist()
        start = max(0, (bisect_left(samples, key) - 1) * _SAMPLE_ROWS)
        return start + bisect_left(self.array.slice(start, _SAMPLE_ROWS).to_pylist(), key)
