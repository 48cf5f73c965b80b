"""Where the records of one segment stand: per log, runs of consecutive indexes.

While a segment takes records its index is in memory; once it is closed the footer has it. Twelve
bytes an entry."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from stelae.spi.log import ENTRY_OVERHEAD_BYTES


class Places(NamedTuple):
    """Where the records of consecutive entries begin, and how long the bodies in them are; in bytes."""

    offsets: array[int]
    sizes: array[int]


class LogRuns:
    """Consecutive entries of one log in one segment, from index ``first`` on."""

    __slots__ = ("first", "offsets", "sizes")

    def __init__(self, first: int) -> None:
        self.first = first
        self.offsets: array[int] = array("Q")
        self.sizes: array[int] = array("I")

    @property
    def next(self) -> int:
        """Index that would continue the part."""
        return self.first + len(self.offsets)


class SharedSegmentIndex:
    """Places of the entries of a segment, by number of the log.

    An index may stand twice, if an entry was replaced or moved within the segment; the place that
    was added last is the one that counts."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: dict[int, list[LogRuns]] = {}

    def add(self, log: int, index: int, offset: int, size: int) -> None:
        """Add the entry of an index."""
        parts = self.parts.get(log)
        if parts is None:
            parts = self.parts[log] = []
        if not parts or index != (part := parts[-1]).first + len(part.offsets):
            parts.append(part := LogRuns(index))
        part.offsets.append(offset)
        part.sizes.append(size)

    def extend(self, log: int, first: int, offsets: list[int], sizes: list[int]) -> None:
        """Add the entries of consecutive indexes from ``first`` on."""
        parts = self.parts.setdefault(log, [])
        if not parts or first != parts[-1].next:
            parts.append(LogRuns(first))
        parts[-1].offsets.fromlist(offsets)
        parts[-1].sizes.fromlist(sizes)

    def replace(self, log: int, index: int) -> None:
        """Forget what the entry of an index, which is added next, makes void."""
        parts = self.parts.get(log)
        if parts and index != parts[-1].next:
            self.cut(log, index)

    def cut(self, log: int, first: int) -> None:
        """Forget a log's entries from index ``first`` on."""
        kept = []
        for part in self.parts.get(log, ()):
            if part.first < first:
                del part.offsets[first - part.first :]
                del part.sizes[first - part.first :]
                kept.append(part)
        if kept:
            self.parts[log] = kept
        else:
            self.parts.pop(log, None)

    def forget(self, log: int) -> None:
        """Forget a log that was dropped."""
        self.parts.pop(log, None)

    def places(self, log: int, first: int, end: int, bytes_max: int, least: int = 1) -> Places | None:
        """Places of consecutive entries from ``first`` on, not all for sure; ``None`` if that one is not here.

        Of an index, only as much is looked at as is asked for: a part may have a million entries.

        Args:
            bytes_max: what they may be charged together, but ``least`` entries are told whatever they are charged.
        """
        for part in reversed(self.parts.get(log, ())):
            if part.first <= first < part.next:
                at = first - part.first
                stop = min(end - part.first, len(part.sizes), at + least + bytes_max // ENTRY_OVERHEAD_BYTES)
                stop = at + max(least, _fitting(part.sizes[at:stop], bytes_max))
                return Places(part.offsets[at:stop], part.sizes[at:stop])
        return None


def _fitting(sizes: array[int], bytes_max: int) -> int:
    """How many of the entries, from the first on, are charged no more than ``bytes_max`` together."""
    for count, size in enumerate(sizes):
        bytes_max -= size + ENTRY_OVERHEAD_BYTES
        if bytes_max < 0:
            return count
    return len(sizes)
