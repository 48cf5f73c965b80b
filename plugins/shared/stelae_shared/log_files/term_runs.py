"""The terms of a log's entries, stored as runs of equal terms."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator


class TermRuns:
    """The term of every index that a log holds. A lookup takes O(log runs). Not safe for several threads.

    Args:
        runs: first index and term of each run, in index order.
    """

    __slots__ = ("_firsts", "_terms")

    def __init__(self, runs: list[tuple[int, int]] | None = None) -> None:
        self._firsts = [first for first, _ in runs or ()]
        self._terms = [term for _, term in runs or ()]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._terms, strict=True)

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, index: int, term: int) -> None:
        """Record the term of the entry that follows the last one."""
        terms = self._terms
        if not terms or terms[-1] != term:
            self._firsts.append(index)
            terms.append(term)

    def extend(self, runs: TermRuns) -> None:
        """Record the runs of the entries that follow the last one."""
        for first, term in runs:
            self.add(first, term)

    def cut(self, from_index: int) -> None:
        """Forget every index at or above ``from_index``."""
        while self._firsts and self._firsts[-1] >= from_index:
            self._firsts.pop()
            self._terms.pop()

    def forget_below(self, index: int) -> None:
        """Forget the runs that end below ``index``."""
        count = max(0, bisect_right(self._firsts, index) - 1)
        del self._firsts[:count]
        del self._terms[:count]

    def term_at(self, index: int) -> int:
        """Return the term of an index that the log holds."""
        return self._terms[bisect_right(self._firsts, index) - 1]
