"""A table of deadlines. It is cheap in the usual case, in which items are removed before their deadline.

Items are in buckets of ten milliseconds. The timer does not fire for an empty bucket. An item can be called up to one
bucket late; it is never called early."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

BUCKET_US: Final = 10_000


class Timed(Protocol):
    """An item with a deadline."""

    #: Maintained by the table. It is 0 while the item is not in the table.
    bucket: int

    def on_due(self, now_us: int) -> None:
        """Handle the deadline. The item has been removed from the table before the call."""


@dataclass(slots=True, eq=False)
class Deadlines:
    """The items, by the monotonic time in microseconds at which each is due."""

    #: Asks that ``expire`` is called at a time in microseconds, or soon after it.
    _wake_at: Callable[[int], None]
    _buckets: dict[int, dict[Timed, None]] = field(init=False, default_factory=dict)
    _order: list[int] = field(init=False, default_factory=list)

    def set(self, item: Timed, due_us: int) -> None:
        """Set an item's deadline to ``due_us``. It replaces an earlier deadline of the item."""
        if item.bucket:
            self.drop(item)
        bucket = item.bucket = -(-due_us // BUCKET_US)
        items = self._buckets.get(bucket)
        if items is None:
            items = self._buckets[bucket] = {}
            heapq.heappush(self._order, bucket)
        items[item] = None
        self._wake_at(due_us)

    def drop(self, item: Timed) -> None:
        """Remove an item. Does nothing if the item is not in the table."""
        items = self._buckets.get(item.bucket)
        if items is not None:
            items.pop(item, None)
        item.bucket = 0

    def next_due_us(self) -> int | None:
        """Return the earliest deadline in microseconds, or ``None`` if the table is empty."""
        while self._order:
            bucket = self._order[0]
            if self._buckets[bucket]:
                return bucket * BUCKET_US
            del self._buckets[heapq.heappop(self._order)]
        return None

    def expire(self, now_us: int) -> None:
        """Call ``on_due`` of the items that are due: by bucket, and within a bucket in the order of ``set``."""
        due: list[tuple[int, Timed]] = []
        while self._order and self._order[0] * BUCKET_US <= now_us:
            bucket = heapq.heappop(self._order)
            due.extend((bucket, item) for item in self._buckets.pop(bucket))
        for bucket, item in due:
            if item.bucket == bucket:  # Otherwise an item called before it has dropped it or given it a new deadline.
                item.bucket = 0
                item.on_due(now_us)
