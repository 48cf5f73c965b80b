"""The index of a segment: the offset and the term of each of its entries."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from stelae_shared.log_files.term_runs import TermRuns

FIRST_OF_GROUP = 1 << 63
"""A flag that is added to the offset of an entry which is the first of its group."""

PAGE_ENTRIES = 512
"""Number of offsets that are looked up together and share a checksum in a footer."""


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """What remains in memory of a segment's index while its offsets are only in the footer.

    Attributes:
        first: index of the first entry, or of the next entry if the segment has none.
        count: number of entries.
        end: offset behind the last group.
        commit_hint: the highest commit index that was recorded up to there.
        runs: terms of the entries.
    """

    first: int
    count: int
    end: int
    commit_hint: int
    runs: TermRuns

    @property
    def next(self) -> int:
        """Index of the next entry."""
        return self.first + self.count


class SegmentIndex:
    """The entries of one segment that no later group of the same segment has replaced.

    Attributes:
        first: index of the first entry, or of the next entry if there are none.
        offsets: where the header of each entry begins. The flag ``FIRST_OF_GROUP`` says that a group header is before
            it. 8 bytes for each entry.
        runs: terms of the entries.
        end: offset behind the last group.
        commit_hint: the highest commit index that was recorded up to here.
    """

    __slots__ = ("commit_hint", "end", "first", "offsets", "runs")

    def __init__(self, first: int, end: int, commit_hint: int = 0) -> None:
        self.first = first
        self.offsets: array[int] = array("Q")
        self.runs = TermRuns()
        self.end = end
        self.commit_hint = commit_hint

    @property
    def next(self) -> int:
        """Index of the next entry."""
        return self.first + len(self.offsets)

    def replace(self, from_index: int) -> None:
        """Void every entry at or above ``from_index``, in this segment and in earlier segments."""
        if from_index <= self.first:
            self.first = from_index
            del self.offsets[:]
        else:
            del self.offsets[from_index - self.first :]
        self.runs.cut(from_index)

    def add(self, term: int, offset: int) -> None:
        """Record the next entry; ``offset`` as in ``offsets``."""
        self.runs.add(self.first + len(self.offsets), term)
        self.offsets.append(offset)

    def extend(self, term: int, offsets: Sequence[int]) -> None:
        """Record the next entries, all of one term."""
        self.runs.add(self.first + len(self.offsets), term)
        self.offsets.extend(offsets)

    def summary(self) -> IndexSummary:
        """Return the index without the offsets."""
        return IndexSummary(self.first, len(self.offsets), self.end, self.commit_hint, self.runs)

    def window(self, index: int, stop: int) -> list[int]:
        """Return the offsets of the entries from ``index`` on, and then the end of the last of these entries.

        The range ends before ``stop`` and has at most ``PAGE_ENTRIES`` entries."""
        position = index - self.first
        behind = min(stop - self.first, position + PAGE_ENTRIES)
        offsets = self.offsets[position : behind + 1].tolist()
        if behind == len(self.offsets):
            offsets.append(self.end)
        return offsets


def count_within(offsets: list[int], bytes_max: int) -> int:
    """Return how many entries, at least one, take at most ``bytes_max`` bytes together.

    Args:
        offsets: offsets of the entries, and then the end of the last entry.
        bytes_max: in bytes."""
    limit = (offsets[0] & ~FIRST_OF_GROUP) + bytes_max
    return max(1, bisect_right(offsets, limit, 1, key=lambda marked: marked & ~FIRST_OF_GROUP) - 1)
