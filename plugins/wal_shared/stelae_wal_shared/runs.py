"""The terms of a log, as runs of equal ones."""

from __future__ import annotations

from bisect import bisect_right


class TermRuns:
    """The term of every index of a log. Lookup is logarithmic in the number of runs."""

    __slots__ = ("_firsts", "_terms")

    def __init__(self, runs: list[tuple[int, int]] | None = None) -> None:
        self._firsts = [first for first, _ in runs or ()]
        self._terms = [term for _, term in runs or ()]

    def pairs(self) -> list[tuple[int, int]]:
        """First index and term of every run."""
        return list(zip(self._firsts, self._terms, strict=True))

    def add(self, index: int, term: int) -> None:
        """Note the term of the entry that follows the last one."""
        terms = self._terms
        if not terms or terms[-1] != term:
            self._firsts.append(index)
            terms.append(term)

    def cut(self, first: int) -> None:
        """Forget every index from ``first`` on."""
        while self._firsts and self._firsts[-1] >= first:
            self._firsts.pop()
            self._terms.pop()

    def forget_to(self, index: int) -> None:
        """Forget the runs that end at or below ``index``."""
        gone = max(0, bisect_right(self._firsts, index + 1) - 1)
        del self._firsts[:gone]
        del self._terms[:gone]

    def term_at(self, index: int) -> int:
        """The term of an index that the log holds."""
        return self._terms[bisect_right(self._firsts, index) - 1]
