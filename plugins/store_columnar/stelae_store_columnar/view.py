"""Views: what a reader sees, pinned while others write, walked step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import TypeAlias

import pyarrow as pa

from stelae.rows.key_order import Comparable
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout
from stelae.spi.store import BATCH_BYTES_MAX
from stelae_store_columnar.levels import PiecePart
from stelae_store_columnar.parts import Cut, Interval, Part, Source, steps
from stelae_store_columnar.state import State

_AHEAD_ROWS = 1 << 16  #: Rows of neighbouring row groups that are decoded in one call,
_AHEAD_BYTES = 2 * BATCH_BYTES_MAX  #: and their bytes, once decoded.


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

    @property
    def bytes_max(self) -> int:
        """Bytes of their values, about."""
        blocks = sum(piece.index.size_bytes for live in self.state.levels.blocks for piece in live.pieces)
        return blocks + sum(chunk.size_bytes for chunk in self.state.chunks)

    def steps(self, low: Comparable | None, high: Comparable | None) -> list[Interval]:
        """Cut a range into steps, in key order."""
        if low is not None and high is not None and low >= high:
            return []
        return steps(self._sources, low, high, self._cut)

    def parts(self, step: Interval) -> list[Part]:
        """Return what the sources have in a step, oldest first."""
        return [part for source in self._sources for part in source.parts(*step)]

    def rows(self, parts: Sequence[Part], layout: Layout, *, again: bool = False) -> list[RowBatch]:
        """Return the visible rows of a step in key order.

        Parts that are plain and do not overlap are handed on one behind the other, as they are: neither sorted nor
        copied, as long as they are in memory."""
        apart = self._apart(parts)
        found = [part.read(layout.ids, again=again) for part in apart or parts]
        if not apart:
            found = [self.state.resolver(layout.ids).visible(found, self.at)]
        return [self.state.fitting.batch(layout, versions) for versions in found]

    def _apart(self, parts: Sequence[Part]) -> list[Part]:
        """The parts by key, if each of them is plain and none shares keys with another; else none."""
        if not all(part.plain(self.at) for part in parts):
            return []
        if len(parts) == 1:
            return [*parts]
        ordered = sorted(parts, key=attrgetter("bounds"))
        meets = any(one.bounds[1] >= other.bounds[0] for one, other in pairwise(ordered))
        return [] if meets else ordered

    def plain_pieces(self, parts: Sequence[Part], layout: Layout) -> list[PiecePart]:
        """Return the parts of a step by key, if they are row groups of one block whose rows as they are stored are what
        a reader sees; else none."""
        pieces = [part for part in self._apart(parts) if isinstance(part, PiecePart)]
        if not pieces or len(pieces) < len(parts):
            return []
        alone = len({id(part.piece.block) for part in pieces}) == 1
        fits = all(self.state.fitting.as_it_stands(layout, part.piece.index.schemas) for part in pieces)
        return pieces if alone and fits else []

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

    @property
    def passed(self) -> bytes | None:
        """Bytes behind which, in the order of the scan, lies all that is left and as little else as can be said.

        ``None``: nothing was passed yet, or all."""
        if not self._at:
            return None
        low, high = self._todo[self._at - 1]
        if self._backwards:
            return None if low is None else self._view.order.encode(low)
        return None if high is None else self._view.order.before(high, low)

    @property
    def at_plain(self) -> bool:
        """Whether plain row groups come next."""
        return bool(self._plain_at(self._at))

    def take_plain(self, rows_max: int, bytes_max: int) -> list[PiecePart]:
        """Pass over steps of plain row groups of one block that come next; return the row groups in key order.

        They have no more rows and decoded bytes together than is said: none are returned where already the first step
        has, or is not plain."""
        found: list[PiecePart] = []
        while pieces := self._plain_at(self._at):
            rows_max -= sum(part.piece.index.rows for part in pieces)
            bytes_max -= sum(part.piece.block.decoded_bytes(part.piece.number, self._layout.ids) for part in pieces)
            if rows_max < 0 or bytes_max < 0 or (found and pieces[0].piece.block is not found[0].piece.block):
                break
            found = [*pieces, *found] if self._backwards else [*found, *pieces]
            self._at += 1
        return found

    def next(self) -> list[RowBatch] | None:
        """Return the rows of the next step, or of several; ``None``: there is none."""
        if self._at >= len(self._todo):
            return None
        together = self.take_plain(_AHEAD_ROWS, _AHEAD_BYTES)
        if together:
            found = list(self._view.plain_rows(together, self._layout))
        else:
            parts = self._prune(self._view.parts(self._todo[self._at]))
            self._at += 1
            found = self._view.rows(parts, self._layout, again=self._again) if parts else []
        return [_reversed(rows) for rows in reversed(found)] if self._backwards else found

    def _plain_at(self, place: int) -> list[PiecePart]:
        """The row groups that are all of a step, if they are plain and read as a whole."""
        if self._again or place >= len(self._todo):
            return []
        return self._view.plain_pieces(self._prune(self._view.parts(self._todo[place])), self._layout)


def _reversed(rows: RowBatch) -> RowBatch:
    count = rows.num_rows
    return RowBatch(rows.layout, rows.arrow.take(pa.array(range(count - 1, -1, -1), pa.int64())))
