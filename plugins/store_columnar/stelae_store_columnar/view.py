"""Views: what a reader sees, pinned while others write, walked step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from stelae.rows.key_order import Comparable
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout
from stelae_store_columnar.levels import PiecePart
from stelae_store_columnar.parts import Cut, Interval, Part, Source, steps
from stelae_store_columnar.state import State

_AHEAD_ROWS = 1 << 16  #: Rows of neighbouring row groups that are decoded in one call.


class View:
    """The rows of a state as of a timestamp; ``None``: all that is applied."""

    def __init__(self, state: State, at: int | None, cut: Cut) -> None:
        self.state = state
        self.at = at
        self.order = cut.order
        self._cut = cut
        self.schema = state.schema
        self._sources: tuple[Source, ...] = (*state.levels.sources, *state.chunks)

    @property
    def rows_max(self) -> int:
        """Versions there are, about: never fewer."""
        return sum(map(len, self.state.chunks)) + sum(live.rows for live in self.state.levels.blocks)

    def steps(self, low: Comparable | None, high: Comparable | None) -> list[Interval]:
        """Cut a range into steps, in key order."""
        if low is not None and high is not None and low >= high:
            return []
        return steps(self._sources, low, high, self._cut)

    def parts(self, step: Interval) -> list[Part]:
        """Return what the sources have in a step, oldest first."""
        return [part for source in self._sources for part in source.parts(*step)]

    def rows(self, parts: Sequence[Part], layout: Layout, *, again: bool = False) -> RowBatch:
        """Return the visible rows of a step in key order."""
        found = [part.read(layout.ids, again=again) for part in parts]
        return self.state.fitting.batch(layout, self.state.resolver(layout.ids).visible(found, self.at))

    def is_plain(self, parts: Sequence[Part], layout: Layout) -> bool:
        """Whether a step is one row group whose rows are just what a reader sees."""
        if len(parts) != 1 or not parts[0].plain(self.at):
            return False
        part = parts[0]
        return isinstance(part, PiecePart) and self.state.fitting.as_it_stands(layout, part.piece.index.schemas)

    def plain_rows(self, parts: Sequence[PiecePart], layout: Layout) -> Iterator[RowBatch]:
        """Return the rows of plain neighbours in one block, decoded together."""
        block = parts[0].piece.block
        places = [block.index.places.get(column_id) for column_id in layout.ids]
        table = block.load([part.piece.number for part in parts], [place for place in places if place is not None])
        names = block.index.names
        arrays = [
            pa.nulls(len(table), column.data_type.arrow()) if place is None else table.column(names[place])
            for place, column in zip(places, layout.columns, strict=True)
        ]
        for batch in pa.Table.from_arrays(arrays, schema=layout.arrow).to_batches():
            yield RowBatch(layout, batch)


Prune: TypeAlias = Callable[[list[Part]], list[Part]]
"""Leaves out of the parts of a step what need not be read."""


class StepReader:
    """The visible rows of a range, step by step, forwards or backwards, with some columns.

    ``prune`` says what of a step need not be read."""

    def __init__(self, view: View, layout: Layout, todo: Sequence[Interval], backwards: bool, prune: Prune) -> None:
        self._view = view
        self._layout = layout
        self._todo = todo[::-1] if backwards else todo
        self._at = 0
        self._backwards = backwards
        self._prune = prune
        self._again = len(todo) <= 2

    def next(self) -> tuple[list[RowBatch], Interval] | None:
        """Return the next step; ``None``: there is none."""
        if self._at >= len(self._todo):
            return None
        step = self._todo[self._at]
        parts = self._prune(self._view.parts(step))
        self._at += 1
        if not parts:
            return [], step
        if self._again or not self._view.is_plain(parts, self._layout):
            rows = self._view.rows(parts, self._layout, again=self._again)
            return ([_reversed(rows)] if self._backwards else [rows]), step
        together, step = self._neighbours(parts[0], step)
        found = list(self._view.plain_rows(together, self._layout))
        if self._backwards:
            return [_reversed(rows) for rows in reversed(found)], step
        return found, step

    def _neighbours(self, part: Part, step: Interval) -> tuple[list[PiecePart], Interval]:
        """Return a plain part with those that follow it in its block, and the range that they make up."""
        assert isinstance(part, PiecePart)
        found = [part]
        rows = part.piece.index.rows
        low, high = step
        while rows < _AHEAD_ROWS and self._at < len(self._todo):
            step = self._todo[self._at]
            parts = self._prune(self._view.parts(step))
            following = parts[0] if self._view.is_plain(parts, self._layout) else None
            if not isinstance(following, PiecePart) or following.piece.block is not part.piece.block:
                break
            found.append(following)
            rows += following.piece.index.rows
            low, high = (step[0], high) if self._backwards else (low, step[1])
            self._at += 1
        return (found[::-1] if self._backwards else found), (low, high)


def _reversed(rows: RowBatch) -> RowBatch:
    count = rows.num_rows
    return RowBatch(rows.layout, rows.arrow.take(pa.array(range(count - 1, -1, -1), pa.int64())))
