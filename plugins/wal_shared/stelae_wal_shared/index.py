"""The index of a segment: for each log, the offsets of its records in runs of consecutive indexes.

While a segment takes records, its index is in memory. Once it is closed, the index is in the footer. It takes 12 bytes
for each entry."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from stelae.spi.log import ENTRY_OVERHEAD_BYTES


class RecordSpans(NamedTuple):
    """The positions of the records of consecutive entries."""

    offsets: array[int]  #: Where each record begins in the file.
    sizes: array[int]  #: Length of each body in bytes.


class EntryRun:
    """Consecutive entries of one log in one segment, from index ``first`` on."""

    __slots__ = ("first", "offsets", "sizes")

    def __init__(self, first: int) -> None:
        self.first = first
        self.offsets: array[int] = array("Q")
        self.sizes: array[int] = array("I")

    @property
    def next(self) -> int:
        """Index that would continue the run."""
        return self.first + len(self.offsets)


class SharedSegmentIndex:
    """The records of a segment's entries, by the number of their log.

    An index may occur twice, if its entry was replaced or moved within the segment. The record that was added last is
    valid."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: dict[int, list[EntryRun]] = {}

    def add(self, log: int, index: int, offset: int, size: int) -> None:
        """Add the record of an entry."""
        runs = self.runs.get(log)
        if runs is None:
            runs = self.runs[log] = []
        if not runs or index != (run := runs[-1]).first + len(run.offsets):
            runs.append(run := EntryRun(index))
        run.offsets.append(offset)
        run.sizes.append(size)

    def extend(self, log: int, first: int, offsets: list[int], sizes: list[int]) -> None:
        """Add the records of entries with consecutive indexes from ``first`` on."""
        runs = self.runs.setdefault(log, [])
        if not runs or first != runs[-1].next:
            runs.append(EntryRun(first))
        runs[-1].offsets.fromlist(offsets)
        runs[-1].sizes.fromlist(sizes)

    def replace(self, log: int, index: int) -> None:
        """Forget the entries that the entry at ``index``, which is added next, makes void."""
        runs = self.runs.get(log)
        if runs and index != runs[-1].next:
            self.cut(log, index)

    def cut(self, log: int, first: int) -> None:
        """Forget a log's entries from index ``first`` on."""
        kept = []
        for run in self.runs.get(log, ()):
            if run.first < first:
                del run.offsets[first - run.first :]
                del run.sizes[first - run.first :]
                kept.append(run)
        if kept:
            self.runs[log] = kept
        else:
            self.runs.pop(log, None)

    def forget(self, log: int) -> None:
        """Forget a log that was dropped."""
        self.runs.pop(log, None)

    def spans(self, log: int, first: int, end: int, bytes_max: int, least: int = 1) -> RecordSpans | None:
        """Return the records of consecutive entries from ``first`` on, or ``None`` if the index lacks ``first``.

        The result may end before ``end``. The time depends on the length of the result and not on that of the run,
        which may have a million entries.

        Args:
            log: number of the log.
            first, end: the range of indexes, ``end`` excluded.
            bytes_max: bound on the sizes of the entries, as they are charged to a reader.
            least: number of entries that are returned even above that bound.
        """
        for run in reversed(self.runs.get(log, ())):
            if run.first <= first < run.next:
                at = first - run.first
                stop = min(end - run.first, len(run.sizes), at + least + bytes_max // ENTRY_OVERHEAD_BYTES)
                stop = at + max(least, _fitting(run.sizes[at:stop], bytes_max))
                return RecordSpans(run.offsets[at:stop], run.sizes[at:stop])
        return None


def _fitting(sizes: array[int], bytes_max: int) -> int:
    """Return how many of the entries, from the first on, are charged at most ``bytes_max`` together."""
    for count, size in enumerate(sizes):
        bytes_max -= size + ENTRY_OVERHEAD_BYTES
        if bytes_max < 0:
            return count
    return len(sizes)
