"""Where entries are: terms by runs, and per segment the offset of each entry."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from stelae_shared.log_files.term_runs import TermRuns

LEADS = 1 << 63
"""Added to the offset of an entry that is the first of its group."""

PAGE_ENTRIES = 512
"""Offsets that are looked up at once, and that share a checksum in a footer."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What stays in memory of a segment's index while its offsets are left in the footer.

    Attributes:
        first: index of the first entry, or of the next one while there are none.
        count: how many entries there are.
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
        """Index that the next entry has."""
        return self.first + self.count


class SegmentIndex:
    """The entries of one segment that no later group of the same segment has replaced.

    Attributes:
        first: index of the first of them, or of the next one while there are none.
        offsets: where the header of each begins, and whether a group header stands before it (see
            ``LEADS``); 8 bytes an entry.
        runs: their terms.
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
        """Index that the next entry has."""
        return self.first + len(self.offsets)

    def replace(self, from_index: int) -> None:
        """Void every entry at or above ``from_index``, in this segment and in those before it."""
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

    def summary(self) -> Summary:
        """What there is to know without the offsets."""
        return Summary(self.first, len(self.offsets), self.end, self.commit_hint, self.runs)

    def window(self, index: int, stop: int) -> list[int]:
        """Offsets of the entries from ``index`` on, below ``stop`` and not more than a page of
        them; then where the last of them ends."""
        position = index - self.first
        behind = min(stop - self.first, position + PAGE_ENTRIES)
        offsets = self.offsets[position : behind + 1].tolist()
        if behind == len(self.offsets):
            offsets.append(self.end)
        return offsets


def fitting(offsets: list[int], bytes_max: int) -> int:
    """How many entries, at least one, take not more than ``bytes_max`` together.

    Args:
        offsets: of the entries, and where the last of them ends."""
    limit = (offsets[0] & ~LEADS) + bytes_max
    return max(1, bisect_right(offsets, limit, 1, key=lambda marked: marked & ~LEADS) - 1)
