"""A table of deadlines that costs next to nothing when, as nearly always, none of them is reached.

Items stand in buckets of ten milliseconds; nobody wakes for an empty one. One bucket late is possible, early is not."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

BUCKET_US: Final = 10_000


class Timed(Protocol):
    """What can be due. ``bucket`` is the table's, 0 while the item is not in it."""

    bucket: int

    def on_due(self, now_us: int) -> None: ...


@dataclass(slots=True, eq=False)
class Deadlines:
    """Items by the monotonic microsecond at which each is due; ``wake_at`` asks for ``expire``."""

    _wake_at: Callable[[int], None]
    _buckets: dict[int, dict[Timed, None]] = field(init=False, default_factory=dict)
    _order: list[int] = field(init=False, default_factory=list)

    def set(self, item: Timed, due_us: int) -> None:
        """Call an item at ``due_us``, instead of when it was to be called before."""
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
        """Forget an item; harmless when it is not in the table."""
        items = self._buckets.get(item.bucket)
        if items is not None:
            items.pop(item, None)
        item.bucket = 0

    def next_due_us(self) -> int | None:
        """Return when the next item is due, or ``None`` when there is none."""
        while self._order:
            bucket = self._order[0]
            if self._buckets[bucket]:
                return bucket * BUCKET_US
            del self._buckets[heapq.heappop(self._order)]
        return None

    def expire(self, now_us: int) -> None:
        """Call the items that are due, earliest bucket first, in order of entry."""
        due: list[tuple[int, Timed]] = []
        while self._order and self._order[0] * BUCKET_US <= now_us:
            bucket = heapq.heappop(self._order)
            due.extend((bucket, item) for item in self._buckets.pop(bucket))
        for bucket, item in due:
            if item.bucket == bucket:  # else one before it has dropped it, or set it anew
                item.bucket = 0
                item.on_due(now_us)
