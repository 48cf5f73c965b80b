"""Levels: which blocks there are, and which of them are older than which.

*Settled* blocks do not overlap each other and are older, key by key, than all fresh ones. *Fresh* blocks come from
flushes, oldest first, and may overlap. A block may begin to count above its first row: what lies below ``start`` was
merged into others already."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from stelae.rows.key_order import Comparable
from stelae_store_columnar.block import Block
from stelae_store_columnar.parts import Cut, Fence, Part
from stelae_store_columnar.sorted_keys import SortedKeys
from stelae_store_columnar.versions import Versions


class Piece:
    """One row group of a block, as far as it counts."""

    __slots__ = ("block", "clipped", "first", "index", "number")

    def __init__(self, block: Block, number: int, start: Comparable | None) -> None:
        self.block = block
        self.number = number
        self.index = block.index.pieces[number]
        self.clipped = start is not None and start > self.index.first
        self.first: Comparable = start if self.clipped else self.index.first


class Live:
    """A block, and the key from which on it counts; ``None``: from its first."""

    __slots__ = ("block", "first", "pieces", "start")

    def __init__(self, block: Block, start: Comparable | None = None) -> None:
        self.block = block
        self.start = start
        found = [Piece(block, number, start) for number in range(len(block.index.pieces))]
        self.pieces = [piece for piece in found if start is None or piece.index.last >= start]
        self.first: Comparable = self.pieces[0].first

    @property
    def last(self) -> Comparable:
        """The greatest key."""
        return self.block.index.last

    @property
    def stamp_max(self) -> int:
        """The highest timestamp of its versions."""
        return max(piece.index.stamp_max for piece in self.pieces)

    @property
    def rows(self) -> int:
        """Versions that count, about."""
        return sum(piece.index.rows for piece in self.pieces)

    def overlaps(self, first: Comparable, last: Comparable) -> bool:
        """Whether a key from ``first`` to ``last`` may be in it."""
        return bool(self.first <= last and first <= self.last)


class Level:
    """Row groups in key order that do not overlap: a ``Source``."""

    def __init__(self, blocks: Sequence[Live]) -> None:
        self.blocks = tuple(sorted(blocks, key=_first))
        self.pieces = [piece for live in self.blocks for piece in live.pieces]
        self._firsts = [piece.first for piece in self.pieces]
        self._lasts = [piece.index.last for piece in self.pieces]

    def between(self, low: Comparable | None, high: Comparable | None) -> Sequence[Piece]:
        """Return the row groups that may hold keys of a range."""
        start = 0 if low is None else bisect_left(self._lasts, low)
        end = len(self.pieces) if high is None else bisect_left(self._firsts, high)
        return self.pieces[start:end]

    def piece_of(self, key: Comparable) -> Piece | None:
        """Return the row group that would hold a key."""
        place = bisect_left(self._lasts, key)
        return self.pieces[place] if place < len(self.pieces) and self._firsts[place] <= key else None

    def overlaps(self, first: Comparable, last: Comparable) -> bool:
        """Whether a key from ``first`` to ``last`` may be in it."""
        place = bisect_left(self._lasts, first)
        return place < len(self.pieces) and bool(self._firsts[place] <= last)

    def fences(self, low: Comparable | None, high: Comparable | None, cut: Cut) -> list[Fence]:
        """Propose the ends of row groups."""
        found = [piece.index for piece in self.between(low, high)]
        return [(cut.order.after(index.last), cut.share(index.rows, index.size_bytes)) for index in found]

    def parts(self, low: Comparable | None, high: Comparable | None) -> Sequence[Part]:
        """Return row groups, the outermost cut to the range."""
        return [PiecePart(piece, low, high) for piece in self.between(low, high)]


class Levels:
    """All blocks of a store at one moment; never changed."""

    def __init__(self, settled: Sequence[Live] = (), fresh: Sequence[Live] = ()) -> None:
        self.settled = Level(settled)
        self.fresh = tuple(Level((live,)) for live in fresh)

    @property
    def sources(self) -> tuple[Level, ...]:
        """Oldest first."""
        return (self.settled, *self.fresh) if self.settled.pieces else self.fresh

    @property
    def blocks(self) -> list[Live]:
        """All of them."""
        return [live for level in (self.settled, *self.fresh) for live in level.blocks]

    def overlaps(self, first: Comparable, last: Comparable) -> bool:
        """Whether a key from ``first`` to ``last`` may be in some block."""
        return any(level.overlaps(first, last) for level in self.sources)


class PiecePart(Part):
    """A row group, or what of it lies in a range."""

    __slots__ = ("_high", "_low", "piece", "whole")

    def __init__(self, piece: Piece, low: Comparable | None, high: Comparable | None) -> None:
        self.piece = piece
        below = low is not None and low > piece.first
        self._low = low if below else (piece.first if piece.clipped else None)
        self._high = None if high is None or high > piece.index.last else high
        self.whole = self._low is None and self._high is None

    @property
    def stamp_min(self) -> int:  # type: ignore[override]
        return self.piece.index.stamp_min

    @property
    def stamp_max(self) -> int:  # type: ignore[override]
        return self.piece.index.stamp_max

    @property
    def row_bytes(self) -> float:
        return self.piece.index.size_bytes / self.piece.index.rows

    @property
    def bounds(self) -> tuple[Comparable, Comparable]:
        return self.piece.first, self.piece.index.last

    def plain(self, at: int | None) -> bool:
        index = self.piece.index
        seen = at is None or index.stamp_max <= at
        return self.whole and index.unique and not index.deletions and seen

    def read(self, ids: Sequence[int], *, again: bool) -> Versions:
        block, number = self.piece.block, self.piece.number
        # What a step leaves of a row group, the next one wants.
        again = again or not self.whole
        versions = block.cached_versions(number, ids) if again else block.versions(number, ids)
        if self.whole:
            return versions
        keys = block.keys(number) if again else SortedKeys(versions.keys)
        start, end = keys.left(self._low, 0), keys.left(self._high, len(keys))
        return versions.slice(start, end - start)


def _first(live: Live) -> Comparable:
    return live.first
