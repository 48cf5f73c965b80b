"""The terms of a log's entries, without the entries: one run for consecutive entries of the same term.

Log matching and the commit rule need only terms and indexes. Memory grows with the number of elections, not with the
number of entries."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from stelae.spi.ids import OpId


class LogTerms:
    """The op ids of a log from ``base`` (exclusive) to ``last`` (inclusive).

    Invariants: ``base.index <= last_index``. Runs ascend in index, and strictly in term. The first run, if any, begins
    at ``base.index + 1``."""

    __slots__ = ("_firsts", "_terms", "base", "last_index", "last_term")

    def __init__(self, base: OpId, last: OpId, runs: Iterable[tuple[int, int]] = ()) -> None:
        self.base = base
        self.last_index = last.index
        self.last_term = last.term
        self._firsts: list[int] = []
        self._terms: list[int] = []
        for first, term in runs:
            self._firsts.append(first)
            self._terms.append(term)

    @property
    def last(self) -> OpId:
        """Op id of the last entry, or ``base`` if there is none."""
        return OpId(self.last_term, self.last_index)

    def runs(self) -> tuple[tuple[int, int], ...]:
        """``(first index, term)`` of each run, ascending."""
        return tuple(zip(self._firsts, self._terms, strict=True))

    def copy(self) -> LogTerms:
        """An independent copy."""
        return LogTerms(self.base, self.last, self.runs())

    def term_at(self, index: int) -> int | None:
        """Return the term of the entry at ``index``, or ``None`` outside of the log. The base has a term, too."""
        if index == self.last_index:
            return self.last_term
        if index > self.last_index or index < self.base.index:
            return None
        if index == self.base.index:
            return self.base.term
        return self._terms[bisect_right(self._firsts, index) - 1]

    def op_id_at(self, index: int) -> OpId:
        """Return the op id at ``index``, which must be within ``base`` to ``last``."""
        term = self.term_at(index)
        assert term is not None, f"no op id at {index}: the log is {self.base} to {self.last}"
        return OpId(term, index)

    def holds(self, op_id: OpId) -> bool:
        """Return true if the log has exactly this op id. The base counts."""
        return self.term_at(op_id.index) == op_id.term

    def append(self, term: int) -> int:
        """Add one entry of ``term`` after the last one and return its index."""
        self.last_index += 1
        if not self._terms or self._terms[-1] != term:
            self._firsts.append(self.last_index)
            self._terms.append(term)
        self.last_term = term
        return self.last_index

    def cut(self, index: int) -> None:
        """Remove every entry at or above ``index``, which must be above ``base.index``."""
        assert index > self.base.index, f"cannot cut at {index}, at or below base {self.base}"
        if index > self.last_index:
            return
        term = self.term_at(index - 1)
        assert term is not None
        remaining = bisect_left(self._firsts, index)
        del self._firsts[remaining:], self._terms[remaining:]
        self.last_index, self.last_term = index - 1, term

    def collect(self, base: OpId) -> None:
        """Remove every entry at or below ``base``, which the log must hold. An older base changes nothing."""
        if base.index <= self.base.index:
            return
        assert self.holds(base), f"cannot collect up to {base}: the log is {self.base} to {self.last}"
        self.base = base
        if base.index == self.last_index:
            self._firsts, self._terms = [], []
            return
        at = bisect_right(self._firsts, base.index + 1) - 1
        del self._firsts[:at], self._terms[:at]
        self._firsts[0] = base.index + 1

    def agreement(self, index: int, term: int) -> OpId | None:
        """Return the last position at or below ``index`` whose term is at most ``term``.

        If another log has ``term`` at ``index`` and this log differs there, the two can agree only at or below that
        position. ``None`` means that they can agree only below ``base``."""
        index = min(index, self.last_index)
        at = bisect_right(self._firsts, index) - 1
        while at >= 0:
            if self._terms[at] <= term:
                return OpId(self._terms[at], index)
            index = self._firsts[at] - 1
            at -= 1
        if index < self.base.index or self.base.term > term:
            return None
        return self.base

    def validate(self) -> None:
        """Check the invariants.

        Raises:
            AssertionError: one does not hold.
        """
        assert self.base.index <= self.last_index
        if not self._firsts:
            assert self.last == self.base
            return
        assert self._firsts[0] == self.base.index + 1
        assert self._firsts == sorted(set(self._firsts))
        assert self._terms == sorted(set(self._terms))
        assert self._terms[0] >= self.base.term
        assert self._firsts[-1] <= self.last_index
        assert self._terms[-1] == self.last_term
