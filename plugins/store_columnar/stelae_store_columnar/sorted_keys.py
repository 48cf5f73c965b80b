"""Sorted comparables in one Arrow array, with a binary search that does not convert the array to Python."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stelae.rows.key_order import Comparable, KeyOrder
from stelae_store_columnar.column_values import column_values, items_of

_SAMPLES_MAX = 1024
"""The most keys of bytes that are kept as Python values. The others are read when they are compared."""

VERSIONS_OF_KEY = 4
"""How many occurrences of each key may be among a number of keys, on average."""


class SortedKeys:
    """Keys in ascending order; a key may occur several times. Several threads may use it."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self._words: memoryview | None = None
        self._samples: list[bytes] | None = None
        self._apart = max(1, -(-len(array) // _SAMPLES_MAX))
        self._values = column_values(array)
        if array.type == pa.int64() and len(array):
            self._words = items_of(array, array.buffers()[1], "q")

    def __len__(self) -> int:
        return len(self.array)

    def at(self, position: int) -> Comparable:
        """Return one key."""
        return self._values.at(position) if self._words is None else self._words[position]

    def find(self, key: Comparable) -> int:
        """Return the position of the first key equal to ``key``, or -1 if there is none."""
        position = self.left(key, 0)
        if position == len(self.array):
            return -1
        return position if self.at(position) == key else -1

    def last(self, key: Comparable) -> int:
        """Return the position of the last key equal to ``key``, or -1 if there is none."""
        words = self._words
        if words is not None:
            position = bisect_right(words, key) - 1
            return position if position >= 0 and words[position] == key else -1
        start = max(0, bisect_right(self._sampled(), key) - 1) * self._apart
        end = min(start + self._apart, len(self.array))
        position = bisect_right(range(end), key, start, key=self._values.at) - 1
        return position if position >= 0 and self._values.at(position) == key else -1

    def end_of_first(
        self, low: Comparable | None, high: Comparable | None, count: int, order: KeyOrder
    ) -> Comparable | None:
        """Return the key before which the first ``count`` different keys of a range are. It is above the first of them.

        If they are more than ``VERSIONS_OF_KEY`` times as many with all occurrences, return an earlier one. ``None``:
        the range has no more keys."""
        start, end = self.left(low, 0), self.left(high, len(self.array))
        position = start + count * (1 if self._ends is None else VERSIONS_OF_KEY)
        if self._ends is not None:
            rank = bisect_right(self._ends, start) + count - 1
            position = min(position, self._ends[rank] if rank < len(self._ends) else end)
        if position >= end:
            return None
        key = self.at(position)
        return order.after(key) if key == self.at(start) else key

    def begin_of_last(self, low: Comparable | None, high: Comparable | None, count: int) -> Comparable | None:
        """Return the key from which on the last ``count`` different keys of a range are, as :meth:`end_of_first`.

        ``None``: the range has no more keys."""
        start, end = self.left(low, 0), self.left(high, len(self.array))
        position = end - count * (1 if self._ends is None else VERSIONS_OF_KEY)
        if self._ends is not None:
            rank = bisect_left(self._ends, end) - count
            position = max(position, self._ends[rank] if rank >= 0 else start)
        return None if position <= start else self.at(position)

    @cached_property
    def _ends(self) -> memoryview | None:
        """The positions behind the last occurrences of the keys; ``None``: each occurs once."""
        if len(self.array) < 2:
            return None
        others = pc.not_equal(self.array.slice(0, len(self.array) - 1), self.array.slice(1))
        if others.true_count == len(others):
            return None
        ends = pc.add(pc.indices_nonzero(others), pa.scalar(1, pa.uint64()))
        ends = pa.concat_arrays([ends, pa.array([len(self.array)], pa.uint64())])
        return memoryview(ends.buffers()[1]).cast("Q")[: len(ends)]

    def left(self, key: Comparable | None, none: int) -> int:
        """Return the position of the first key at or above ``key``, or the length if there is none.

        For the key ``None``, return ``none``."""
        if key is None:
            return none
        if self._words is not None:
            return bisect_left(self._words, key)
        start = max(0, (bisect_left(self._sampled(), key) - 1) * self._apart)
        return bisect_left(range(min(start + self._apart, len(self.array))), key, start, key=self._values.at)

    def _sampled(self) -> list[bytes]:
        samples = self._samples
        if samples is None:
            samples = self._samples = [*self._values.several(range(0, len(self.array), self._apart))]
        return samples
