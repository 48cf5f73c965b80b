"""A table of deadlines that costs next to nothing when, as nearly always, none of them is reached.

Items stand in buckets of ten milliseconds; completing one removes it from its bucket, and nobody
wakes for an empty bucket. An item may be reported up to one bucket late, never early.
"""

from __future__ import annotations

import heapq
from typing import Final, Generic, TypeVar

BUCKET_US: Final = 10_000

Item = TypeVar("Item")


class Deadlines(Generic[Item]):
    """Items by the monotonic microsecond at which each is due, rounded up to a bucket."""

    __slots__ = ("_buckets", "_order")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Item, None]] = {}
        self._order: list[int] = []

    def add(self, due_us: int, item: Item) -> int:
        """Enter an item; return the bucket, which ``discard`` wants back."""
        bucket = -(-due_us // BUCKET_US)
        items = self._buckets.get(bucket)
        if items is None:
            items = self._buckets[bucket] = {}
            heapq.heappush(self._order, bucket)
        items[item] = None
        return bucket

    def discard(self, bucket: int, item: Item) -> None:
        """Remove an item; harmless when it is no longer there."""
        if bucket in self._buckets:
            self._buckets[bucket].pop(item, None)

    def next_due_us(self) -> int | None:
        """Return when the next item is due, or ``None`` when there is none."""
        while self._order:
            bucket = self._order[0]
            if self._buckets[bucket]:
                return bucket * BUCKET_US
            del self._buckets[heapq.heappop(self._order)]
        return None

    def pop_due(self, now_us: int) -> list[Item]:
        """Remove and return the items that are due, earliest bucket first, in order of entry."""
        due: list[Item] = []
        while self._order and self._order[0] * BUCKET_US <= now_us:
            due.extend(self._buckets.pop(heapq.heappop(self._order)))
        return due
