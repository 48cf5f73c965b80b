"""Sorted comparables in one Arrow array, with a binary search that does not convert the array to Python."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stelae.rows.key_order import Comparable, KeyOrder
from stelae_store_columnar.column_values import column_values, items_of

_SAMPLES_MAX = 1024
"""The most keys of bytes that are kept as Python values. The others are read when they are compared."""

_SAMPLE_BYTES = 41
"""Memory of such a key besides its bytes."""

TOGETHER_MIN = 16
"""From this number of keys on, :meth:`SortedKeys.last_of_each` is faster than :meth:`SortedKeys.last`."""

VERSIONS_OF_KEY = 4
"""How many occurrences of each key may be among a number of keys, on average."""


_COUNTED_MAX = 1 << 16
"""The most keys whose different values are counted. Counting them takes less than a millisecond."""


class SortedKeys:
    """Keys in ascending order; a key may occur several times. Several threads may use it."""

    __slots__ = ("_apart", "_computed_ends", "_samples", "_values", "_words", "array")

    def __init__(self, array: Any) -> None:
        self.array = array
        self._words: memoryview | None = None
        self._samples: list[bytes] | None = None
        self._apart = max(1, -(-len(array) // _SAMPLES_MAX))
        self._values = column_values(array)
        self._computed_ends: memoryview | Literal[False] | None = False  # Several threads may compute it.
        if array.type == pa.int64() and len(array):
            self._words = items_of(array, array.buffers()[1], "q")

    def __len__(self) -> int:
        return len(self.array)

    @property
    def size_bytes(self) -> int:
        """Approximate memory, with the keys that are kept as Python values."""
        array_bytes = int(self.array.nbytes)
        if self._words is not None:
            return array_bytes
        return array_bytes + (len(self.array) * _SAMPLE_BYTES + array_bytes) // self._apart

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

    def last_of_each(self, keys: Sequence[Comparable]) -> Sequence[int]:
        """Return the position of the last key equal to each of some keys, or -1, in their order."""
        if self._words is None:
            return [*map(self.last, keys)]
        own, wanted = np.frombuffer(self._words, np.int64), np.array(keys, np.int64)
        positions = own.searchsorted(wanted, side="right") - 1
        # The position -1 is that of the last key, which is not equal to a key below the first one.
        found: list[int] = np.where(own[positions] == wanted, positions, -1).tolist()
        return found

    def end_of_first(
        self, low: Comparable | None, high: Comparable | None, count: int, order: KeyOrder
    ) -> Comparable | None:
        """Return the key before which the first ``count`` different keys of a range are. It is above the first of them.

        If they are more than ``VERSIONS_OF_KEY`` times as many with all occurrences, return an earlier one. ``None``:
        the range has no more keys."""
        start, end = self.left(low, 0), self.left(high, len(self.array))
        ends = self._ends
        if ends is None:
            position = start + count
        else:
            rank = bisect_right(ends, start) + count - 1
            position = min(start + count * VERSIONS_OF_KEY, ends[rank] if rank < len(ends) else end)
        if position >= end:
            return None
        key = self.at(position)
        return order.after(key) if key == self.at(start) else key

    def begin_of_last(self, low: Comparable | None, high: Comparable | None, count: int) -> Comparable | None:
        """Return the first of the last ``count`` different keys of a range, with the limit of :meth:`end_of_first`.

        ``None``: the range has no more keys."""
        start, end = self.left(low, 0), self.left(high, len(self.array))
        ends = self._ends
        if ends is None:
            position = end - count
        else:
            rank = bisect_left(ends, end) - count
            position = max(end - count * VERSIONS_OF_KEY, ends[rank] if rank >= 0 else start)
        return None if position <= start else self.at(position)

    @property
    def _ends(self) -> memoryview | None:
        """The positions behind the last occurrences of the keys.

        ``None``: each occurs once, or there are more than ``_COUNTED_MAX``, and each is assumed to occur once."""
        found = self._computed_ends
        if found is False:
            found = self._computed_ends = _ends_of(self.array) if 1 < len(self.array) <= _COUNTED_MAX else None
        return found

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


def _ends_of(array: Any) -> memoryview | None:
    others = pc.not_equal(array.slice(0, len(array) - 1), array.slice(1))
    if others.true_count == len(others):
        return None
    ends = pa.concat_arrays([pc.indices_nonzero(others), pa.array([len(array) - 1], pa.uint64())])
    ends = pc.add(ends, pa.scalar(1, pa.uint64()))
    return items_of(ends, ends.buffers()[1], "Q")
