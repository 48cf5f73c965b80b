"""Where entries are: terms by runs, and per segment the offset of each entry."""

from __future__ import annotations

from array import array
from bisect import bisect_right

LEADS = 1 << 63
"""Added to the offset of an entry that is the first of its group."""


class TermRuns:
    """The term of every index of a log as runs of equal terms. Lookup is O(log runs)."""

    __slots__ = ("_firsts", "_terms")

    def __init__(self, runs: list[tuple[int, int]] | None = None) -> None:
        self._firsts = [first for first, _ in runs or ()]
        self._terms = [term for _, term in runs or ()]

    def __iter__(self) -> zip[tuple[int, int]]:
        return zip(self._firsts, self._terms, strict=True)

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, index: int, term: int) -> None:
        """Record the term of the entry at ``index``, which is the next one."""
        if not self._terms or self._terms[-1] != term:
            self._firsts.append(index)
            self._terms.append(term)

    def extend(self, runs: TermRuns) -> None:
        """Record the runs of the segment that follows."""
        for first, term in runs:
            self.add(first, term)

    def cut(self, from_index: int) -> None:
        """Forget every index at or above ``from_index``."""
        while self._firsts and self._firsts[-1] >= from_index:
            self._firsts.pop()
            self._terms.pop()

    def forget_below(self, index: int) -> None:
        """Forget runs that end before ``index``."""
        keep = max(0, bisect_right(self._firsts, index) - 1)
        del self._firsts[:keep]
        del self._terms[:keep]

    def term_at(self, index: int) -> int:
        """Return the term at an index that is known to be covered."""
        return self._terms[bisect_right(self._firsts, index) - 1]

    def copy(self) -> TermRuns:
        """An independent copy."""
        return TermRuns(list(self))


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

    def offset_of(self, index: int) -> int:
        """Where the entry of an index that is here begins."""
        return self.offsets[index - self.first] & ~LEADS

    def end_of(self, index: int) -> int:
        """An offset at or behind the end of the entry of an index that is here."""
        position = index - self.first + 1
        return self.offsets[position] & ~LEADS if position < len(self.offsets) else self.end
