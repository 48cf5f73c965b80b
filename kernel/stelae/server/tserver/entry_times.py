"""Remembers when a replica had new entries, so that its history floor never falls into a gap between two of them.

A tablet that was idle shows its last entry's time as the present. Scans, Spark jobs, feeds and backups that began then
read at that time. Its next write makes it the past. If the floor then followed the clock alone, it would pass that time
at once, although the rows of that time are those of the floor: no entry lies between the two."""

from __future__ import annotations

from bisect import bisect_right


class EntryTimes:
    """The newest timestamp of a replica's entries, and earlier ones.

    Args:
        apart: how far the earlier ones are apart, at least, as a difference of hybrid timestamps. So their number is
            bounded for a busy tablet.
    """

    def __init__(self, apart: int) -> None:
        self._apart = apart
        self._times: list[int] = []

    def note(self, timestamp: int) -> None:
        """Note the timestamp of the newest entry. It is not below the one before."""
        times = self._times
        if not times or timestamp > times[-1]:
            if len(times) > 1 and times[-1] - times[-2] < self._apart:
                times.pop()
            times.append(timestamp)

    def floor(self, wanted: int) -> int:
        """Return a history floor at or below a timestamp, which is not below that of the call before.

        No entry that is known lies between it and ``wanted``, except for those that are too close to it."""
        place = bisect_right(self._times, wanted)
        if not place:
            return wanted  # No entry so old is known: this node has started since.
        del self._times[: place - 1]
        return self._times[0]
