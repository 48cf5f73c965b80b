"""The steps of one scan, planned as it goes on.

A scan of few rows begins with short steps: the first has somewhat more keys of a source than the scan wants rows, and
each later one twice as many as the one before. So it neither resolves whole row groups for a few rows, nor looks at
the rest of the range. That is divided into full steps if short ones do not suffice, for example because of predicates
or deletions."""

from __future__ import annotations

from collections import deque

from stelae_store_columnar.sources import KeyInterval, MustBlock, SourceSlice
from stelae_store_columnar.view import ColumnarView

_FEW_STEPS = 2  #: A range with up to this number of full steps is read through the cache.
_SHORT_ROWS_MIN = 8  #: A step has a fixed cost, so shorter ones save nothing.
_BY_ROW_MAX = 512  #: A step with more rows of each source is not read row by row.
_SHORT_ROWS_MAX = 1024  #: The most keys of each source in a short step.
_SHORT_STEPS_MAX = 6  #: The most short steps. The rest of the range is divided into full steps.


class StepPlan:
    """The steps of a range, in the order of a scan.

    Args:
        view: the view that is read.
        interval: the range.
        backwards: whether the scan begins at the end of the range.
        rows_wanted: the most rows that the scan returns; ``None``: all.
        may_block: whether blocks may be read. Otherwise there are only short steps, of what is in memory.
    """

    def __init__(
        self,
        view: ColumnarView,
        interval: KeyInterval,
        *,
        backwards: bool = False,
        rows_wanted: int | None = None,
        may_block: bool = True,
    ) -> None:
        self._view = view
        self._may_block = may_block
        self.backwards = backwards
        self._short_rows = _SHORT_ROWS_MAX if rows_wanted is None else _SHORT_ROWS_MIN + rows_wanted * 5 // 4
        self._short_steps_left = _SHORT_STEPS_MAX if self._short_rows < _SHORT_ROWS_MAX else 0
        self._rest: KeyInterval | None = interval  # Not planned yet.
        self._planned: deque[KeyInterval] = deque()
        self.is_short = False  #: Whether the next step has so few rows that they are read row by row.
        self.uses_cache = False  #: Whether few row groups are read, and others near them perhaps soon.
        self.taken: KeyInterval | None = None  #: The last step that was taken.

    @property
    def next(self) -> KeyInterval | None:
        """The next step; ``None``: there is none. Planning a short step may read blocks, or raise ``MustBlock``."""
        if not self._planned and self._rest is not None:
            self._plan(self._rest)
        return self._planned[0] if self._planned else None

    def take(self) -> None:
        """Move over the next step."""
        self.taken = self._planned.popleft()

    def slices(self, step: KeyInterval) -> list[SourceSlice]:
        """Return the slices of a step, oldest first. ``MustBlock``: they cannot be read at once, and must be."""
        return self._view.slices(step) if self._may_block else self._view.held_slices(step)

    def _plan(self, rest: KeyInterval) -> None:
        """Plan one short step, or all full steps of the rest of the range."""
        if self._short_steps_left:
            self.uses_cache, self.is_short = True, self._short_rows <= _BY_ROW_MAX
            short, self._rest = self._view.short_step(
                rest, self._short_rows, backwards=self.backwards, may_block=self._may_block
            )
            self._short_rows = min(2 * self._short_rows, _SHORT_ROWS_MAX)
            self._short_steps_left -= 1
            self._planned.append(short)
            return
        if not self._may_block:
            raise MustBlock
        self._rest, self.is_short = None, False
        steps = self._view.steps(*rest)
        self.uses_cache = len(steps) <= _FEW_STEPS
        self._planned.extend(reversed(steps) if self.backwards else steps)
