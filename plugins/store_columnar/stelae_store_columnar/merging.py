"""Merging: versions of some sources become new blocks, without those that nobody can see any more.

A merge of settled and fresh blocks goes through the keys piece by piece, so that no call takes long. After a piece the
fresh blocks, and the settled one in which the piece ended, count from its end only: the manifest says so, and no file
is written twice. A round ends when the fresh blocks that it began with are used up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

from stelae.rows.key_order import Comparable
from stelae_store_columnar.block import Block, BlockReader
from stelae_store_columnar.block_writer import BlockWriter
from stelae_store_columnar.chunks import Chunk, gathered, overlap
from stelae_store_columnar.config import ColumnarConfig
from stelae_store_columnar.directory import BlockDirectory
from stelae_store_columnar.file_layout import types_of
from stelae_store_columnar.levels import Level, Levels, Live
from stelae_store_columnar.parts import Cut, Interval, Source, steps
from stelae_store_columnar.state import State
from stelae_store_columnar.versions import Versions

_CRUMBS_MIN = 4  #: Fewer small blocks are not worth writing again.


class Merger:
    """Writes blocks. Used by the applying thread alone."""

    def __init__(self, directory: BlockDirectory, reader: BlockReader, config: ColumnarConfig) -> None:
        self._directory = directory
        self._reader = reader
        self._config = config
        self._cut = Cut(reader.order, config.row_group_rows)

    def flushed(self, state: State, floor: int) -> Levels:
        """Write out what is in memory; return the levels with it. Blocks that meet no others are settled at once."""
        levels = state.levels
        settled, fresh = [*levels.settled.blocks], [level.blocks[0] for level in levels.fresh]
        chunks: Sequence[Chunk] = state.chunks
        if overlap(chunks):
            chunks = gathered(chunks, types_of(state.schema))
        for live in self._write(state, floor, chunks, (None, None), not levels.blocks):
            # By whole blocks: the key gap between two row groups of one is no place for another.
            meets = any(other.overlaps(live.first, live.last) for other in levels.blocks)
            (fresh if meets else settled).append(live)
        return Levels(settled, fresh)

    def wants_round(self, levels: Levels, floor: int) -> bool:
        """Whether a round is under way, or worth beginning: many blocks overlap, or nobody can see what one hides."""
        fresh = levels.fresh
        if not fresh or _begun(levels) or len(fresh) >= self._config.fresh_blocks_min:
            return bool(fresh)
        return floor >= fresh[0].blocks[0].stamp_max

    def pieces_due(self, levels: Levels) -> int:
        """Return how many pieces a flush has to do itself, lest the fresh blocks become too many."""
        over = len(levels.fresh) - self._config.fresh_blocks_min
        if over < 1:
            return 0
        waiting = sum(live.rows for live in levels.blocks)
        room = self._config.fresh_blocks_max - len(levels.fresh)
        pieces = waiting // self._config.compact_rows + 1
        return pieces if room < 1 else pieces // (room + 1)

    def merged(self, state: State, floor: int) -> Levels:
        """Do one piece of a round, beginning one if none is under way; return the levels after it."""
        levels = state.levels
        taking = _begun(levels) or [level.blocks[0] for level in levels.fresh]
        low = min(live.first for live in taking)
        for live in levels.settled.blocks:
            if live.first < low <= live.last:
                low = live.first
        sources = [levels.settled, *(Level((live,)) for live in taking)]
        high = self._end_of_piece(sources, low, None)
        straddling = high is not None and any(live.first < high <= live.last for live in levels.settled.blocks)
        new = self._write(state, floor, sources, (low, high), not straddling)
        settled = _from(levels.settled.blocks, low, high) + new
        fresh = [level.blocks[0] for level in levels.fresh]
        rest = [live for live in fresh if live not in taking]
        return Levels(settled, [*_begin_at(taking, high), *rest])

    def garbage(self, levels: Levels, floor: int) -> Live | None:
        """Return a settled block of which the history floor has made much superfluous."""
        for live in levels.settled.blocks:
            index = live.block.index
            sure = index.garbage_rows if floor >= index.garbage_stamp_max else 0
            if floor >= index.garbage_stamp:
                sure = max(sure, index.garbage_rows // 2)
            if sure and 100 * sure >= index.rows * self._config.garbage_percent_max:
                return live
        return None

    def rewritten(self, state: State, live: Live, floor: int) -> Levels:
        """Write a piece of a settled block again without its garbage; return the levels after it."""
        levels = state.levels
        low, end = live.first, self._cut.order.after(live.last)
        high = self._end_of_piece([Level((live,))], low, end)
        new = self._write(state, floor, [Level((live,))], (low, end if high is None else high), True)
        others = [other for other in levels.settled.blocks if other is not live]
        rest = [] if high is None else _begin_at([live], high)
        return Levels([*others, *new, *rest], [level.blocks[0] for level in levels.fresh])

    def crumbs(self, levels: Levels) -> Sequence[Live]:
        """Return neighbouring settled blocks that together make up one of ordinary size; none: there are no such."""
        found: list[Live] = []
        for live in (*levels.settled.blocks, None):
            if live is not None and self._fits([*found, live]):
                found.append(live)
                continue
            if len(found) >= _CRUMBS_MIN and 2 * max(one.rows for one in found) <= sum(one.rows for one in found):
                return found
            found = [] if live is None or not self._fits([live]) else [live]
        return ()

    def swept(self, state: State, crumbs: Sequence[Live], floor: int) -> Levels:
        """Put neighbouring settled blocks together; return the levels after it."""
        levels = state.levels
        others = [live for live in levels.settled.blocks if live not in crumbs]
        new = self._write(state, floor, [Level(crumbs)], (None, None), True)
        return Levels([*others, *new], [level.blocks[0] for level in levels.fresh])

    def _fits(self, lives: Sequence[Live]) -> bool:
        """Whether blocks can become one in one piece."""
        rows = sum(live.rows for live in lives)
        size_bytes = sum(live.block.index.file_bytes for live in lives)
        if rows > self._config.block_rows_max or 2 * size_bytes > self._config.block_bytes_max:
            return False
        found = [piece.index for live in lives for piece in live.pieces]
        share = sum(self._cut.share(index.rows, index.size_bytes) for index in found)
        return share * self._cut.rows <= self._config.compact_rows

    def _end_of_piece(self, sources: Sequence[Source], low: Comparable, high: Comparable | None) -> Comparable | None:
        """The key before which a piece ends; ``None``: it takes all there is."""
        fences = [fence for source in sources for fence in source.fences(low, high, self._cut)]
        fences.sort(key=itemgetter(0))
        limit = self._config.compact_rows / self._cut.rows
        share = 0.0
        for key, weight in fences[:-1]:
            share += weight
            if share >= limit and key < fences[-1][0]:
                return key
        return None

    def _write(self, state: State, floor: int, sources: Sequence[Source], span: Interval, bottom: bool) -> list[Live]:
        writer = BlockWriter(self._reader.files, state.schema, self._config, self._directory.next_path)
        try:
            for versions in whole_versions(state, sources, span, self._cut):
                writer.add(state.resolver(state.schema.layout.ids).needed([versions], floor, bottom))
            written = writer.finish()
            self._directory.sync()
        except BaseException:
            writer.abandon()
            raise
        return [Live(Block(self._reader, path, index)) for path, index in written]


def whole_versions(state: State, sources: Sequence[Source], span: Interval, cut: Cut) -> Iterator[Versions]:
    """Return all versions of some sources in a range, step by step, none of them partial.

    What partial versions in memory do not say stands in blocks below; only the steps that have such read those."""
    ids = state.schema.layout.ids
    resolver = state.resolver(ids)
    partial = any(isinstance(source, Chunk) and source.versions.partial is not None for source in sources)
    below = state.levels.sources if partial else ()
    for step in steps((*below, *sources), *span, cut):
        parts = [part.read(ids, again=False) for source in sources for part in source.parts(*step)]
        under: list[Versions] = []
        if any(part.partial is not None for part in parts):
            under = [part.read(ids, again=False) for level in below for part in level.parts(*step)]
        if parts:
            yield resolver.completed(under, parts)


def _begun(levels: Levels) -> list[Live]:
    """The fresh blocks of the round under way, oldest first."""
    return [level.blocks[0] for level in levels.fresh if level.blocks[0].start is not None]


def _begin_at(blocks: Sequence[Live], high: Comparable | None) -> list[Live]:
    """What is left of blocks from a key on."""
    if high is None:
        return []
    return [Live(live.block, high) for live in blocks if live.last >= high]


def _from(blocks: Sequence[Live], low: Comparable, high: Comparable | None) -> list[Live]:
    """What is left of settled blocks when a range was taken out of them. None begins below it and reaches into it."""
    inside = [live for live in blocks if live.last >= low and (high is None or live.first < high)]
    return [live for live in blocks if live not in inside] + _begin_at(inside, high)
