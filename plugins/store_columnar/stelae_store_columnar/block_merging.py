"""Flushes and merges: versions of some sources are written to new blocks, without those that no reader can see any
more.

A merge round takes the blocks of level 0 that exist at its beginning, and merges them into level 1. It goes through
their keys in steps, so that no call takes long. After a step, the blocks of level 0 count only from the end of the step
on, as does the block of level 1 in which the step ended. The manifest says so, and no file is written twice. The round
ends when no key of its level 0 blocks is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

from stelae.rows.key_order import Comparable
from stelae_store_columnar.block import BlockReader, ColumnarBlock
from stelae_store_columnar.block_directory import BlockDirectory
from stelae_store_columnar.block_writer import ColumnarBlockWriter
from stelae_store_columnar.config import ColumnarConfig
from stelae_store_columnar.file_layout import types_of
from stelae_store_columnar.history_floor import HistoryFloor
from stelae_store_columnar.levels import BlockLevel, Levels, LiveBlock
from stelae_store_columnar.memory_chunks import MemoryChunk, chunks_overlap, grouped_chunks
from stelae_store_columnar.sources import KeyInterval, SourceSlice, StepSize, VersionSource, steps
from stelae_store_columnar.state import ColumnarState
from stelae_store_columnar.version_resolver import VersionResolver
from stelae_store_columnar.versions import STAMP_MAX, RowVersions

_SMALL_BLOCKS_MIN = 4  #: Fewer small neighbouring blocks are not merged.


class BlockMerger:
    """Writes blocks. Only the applying thread uses it.

    ``blocks`` has every block whose files exist, by number. New ones are added to it."""

    def __init__(
        self, directory: BlockDirectory, reader: BlockReader, config: ColumnarConfig, blocks: dict[int, ColumnarBlock]
    ) -> None:
        self._directory = directory
        self._blocks = blocks
        self._reader = reader
        self._config = config
        self._step_size = StepSize(reader.order, config.row_group_rows)

    def flushed(self, state: ColumnarState, history: HistoryFloor) -> Levels:
        """Write the memtable to blocks.

        Returns the levels with them. A block that overlaps no other goes to level 1 at once."""
        levels = state.levels
        level1, level0 = [*levels.level1.blocks], [level.blocks[0] for level in levels.level0]
        chunks: Sequence[MemoryChunk] = state.chunks
        if chunks_overlap(chunks):
            chunks = grouped_chunks(chunks, types_of(state.schema))
        for live in self._write(state, history, chunks, (None, None), not levels.blocks):
            # Compared with whole blocks: a block must not lie in the gap between two row groups of another one.
            meets = any(other.overlaps(live.first, live.last) for other in levels.blocks)
            (level0 if meets else level1).append(live)
        return Levels(level1, level0)

    def has_round(self, levels: Levels, history: HistoryFloor) -> bool:
        """Return true if a round is under way or should begin.

        It should begin if many blocks overlap, or if no reader can see the versions that a level 0 block replaces."""
        level0 = levels.level0
        if not level0 or _blocks_in_round(levels) or len(level0) >= self._config.level0_blocks_min:
            return bool(level0)
        return history.timestamp >= level0[0].blocks[0].stamp_max

    def merge_steps_due(self, levels: Levels) -> int:
        """Return the number of merge steps that a flush must do itself to limit the blocks of level 0."""
        over = len(levels.level0) - self._config.level0_blocks_min
        if over < 1:
            return 0
        waiting = sum(live.rows for live in levels.blocks)
        room = self._config.level0_blocks_max - len(levels.level0)
        steps_left = waiting // self._config.merge_step_rows + 1
        return steps_left if room < 1 else steps_left // (room + 1)

    def merge_step(self, state: ColumnarState, history: HistoryFloor) -> Levels:
        """Do one step of a round, and begin a round if none is under way. Returns the levels after the step."""
        levels = state.levels
        taking = _blocks_in_round(levels) or [level.blocks[0] for level in levels.level0]
        low = min(live.first for live in taking)
        for live in levels.level1.blocks:
            if live.first < low <= live.last:
                low = live.first
        sources = [levels.level1, *(BlockLevel((live,)) for live in taking)]
        high = self._end_of_step(sources, low, None)
        straddling = high is not None and any(live.first < high <= live.last for live in levels.level1.blocks)
        new = self._write(state, history, sources, (low, high), not straddling)
        level1 = _without_range(levels.level1.blocks, low, high) + new
        level0 = [level.blocks[0] for level in levels.level0]
        rest = [live for live in level0 if live not in taking]
        return Levels(level1, [*_from_key(taking, high), *rest])

    def garbage(self, levels: Levels, history: HistoryFloor) -> LiveBlock | None:
        """Return a level 1 block with many versions that the history floor makes superfluous, or ``None``."""
        for live in levels.level1.blocks:
            index = live.block.index
            garbage_rows = index.garbage_rows if history.timestamp >= index.garbage_stamp_max else 0
            if history.timestamp >= index.garbage_stamp:
                garbage_rows = max(garbage_rows, index.garbage_rows // 2)
            if garbage_rows and 100 * garbage_rows >= index.rows * self._config.garbage_percent_max:
                return live
        return None

    def rewrite(self, state: ColumnarState, live: LiveBlock, history: HistoryFloor) -> Levels:
        """Rewrite a part of a level 1 block without its superfluous versions. Returns the levels after it."""
        levels = state.levels
        low, end = live.first, self._step_size.order.after(live.last)
        high = self._end_of_step([BlockLevel((live,))], low, end)
        new = self._write(state, history, [BlockLevel((live,))], (low, end if high is None else high), True)
        others = [other for other in levels.level1.blocks if other is not live]
        rest = [] if high is None else _from_key([live], high)
        return Levels([*others, *new, *rest], [level.blocks[0] for level in levels.level0])

    def small_neighbours(self, levels: Levels) -> Sequence[LiveBlock]:
        """Return neighbouring level 1 blocks that together make one block of ordinary size, or nothing."""
        found: list[LiveBlock] = []
        for live in (*levels.level1.blocks, None):
            if live is not None and self._fits([*found, live]):
                found.append(live)
                continue
            if len(found) >= _SMALL_BLOCKS_MIN and 2 * max(one.rows for one in found) <= sum(one.rows for one in found):
                return found
            found = [] if live is None or not self._fits([live]) else [live]
        return ()

    def merge_neighbours(
        self, state: ColumnarState, small_neighbours: Sequence[LiveBlock], history: HistoryFloor
    ) -> Levels:
        """Merge neighbouring level 1 blocks into one. Returns the levels after it."""
        levels = state.levels
        others = [live for live in levels.level1.blocks if live not in small_neighbours]
        new = self._write(state, history, [BlockLevel(small_neighbours)], (None, None), True)
        return Levels([*others, *new], [level.blocks[0] for level in levels.level0])

    def _fits(self, lives: Sequence[LiveBlock]) -> bool:
        """Return true if blocks can be merged into one block in one step."""
        rows = sum(live.rows for live in lives)
        size_bytes = sum(live.block.index.file_bytes for live in lives)
        if rows > self._config.block_rows_max or 2 * size_bytes > self._config.block_bytes_max:
            return False
        found = [row_group.index for live in lives for row_group in live.row_groups]
        share = sum(self._step_size.share(index.rows, index.size_bytes) for index in found)
        return share * self._step_size.rows <= self._config.merge_step_rows

    def _end_of_step(
        self, sources: Sequence[VersionSource], low: Comparable, high: Comparable | None
    ) -> Comparable | None:
        """Return the key before which a step ends; ``None``: at the end of the sources."""
        cut_points = [fence for source in sources for fence in source.cut_points(low, high, self._step_size)]
        cut_points.sort(key=itemgetter(0))
        limit = self._config.merge_step_rows / self._step_size.rows
        share = 0.0
        for key, weight in cut_points[:-1]:
            share += weight
            if share >= limit and key < cut_points[-1][0]:
                return key
        return None

    def _write(
        self,
        state: ColumnarState,
        history: HistoryFloor,
        sources: Sequence[VersionSource],
        span: KeyInterval,
        bottom: bool,
    ) -> list[LiveBlock]:
        writer = ColumnarBlockWriter(self._reader.files, state.schema, self._config, self._directory.next_path)
        try:
            for versions in whole_versions(state, sources, span, self._step_size, history):
                writer.add(state.resolver(state.schema.layout.ids).needed([versions], history.timestamp, bottom))
            written = writer.finish()
            self._directory.sync()
        except BaseException:
            writer.abandon()
            raise
        blocks = {self._directory.number_of(path): ColumnarBlock(self._reader, path, index) for path, index in written}
        self._blocks.update(blocks)
        return [LiveBlock(block) for block in blocks.values()]


def whole_versions(
    state: ColumnarState,
    sources: Sequence[VersionSource],
    span: KeyInterval,
    step_size: StepSize,
    history: HistoryFloor,
) -> Iterator[RowVersions]:
    """Return all versions of some sources in a range, step by step, with all columns.

    A partial version in memory gets its other columns from the blocks below. Only the steps with partial versions read
    them. Before a step in which a key has too many versions, the history floor rises; versions below it are missing."""
    ids = state.schema.layout.ids
    resolver = state.resolver(ids)
    partial = any(isinstance(source, MemoryChunk) and source.versions.partial is not None for source in sources)
    below = state.levels.sources if partial else ()
    for step in steps((*below, *sources), *span, step_size):
        slices = [source_slice for source in sources for source_slice in source.slices(*step)]
        under = [source_slice for level in below for source_slice in level.slices(*step)]
        large = history.make_room([*under, *slices])
        parts = [_read(resolver, one, history.timestamp if large else None) for one in slices]
        if not any(part.partial is not None for part in parts):
            under = []
        if parts:
            yield resolver.complete([_read(resolver, one, STAMP_MAX if large else None) for one in under], parts)


def _read(resolver: VersionResolver, source_slice: SourceSlice, floor: int | None) -> RowVersions:
    """Read a slice, if there is a floor without the versions that no read at or above it can see."""
    versions = source_slice.read([*resolver.types], use_cache=False)
    if floor is None or versions.partial is not None:
        return versions
    return resolver.needed([versions], floor, False)


def _blocks_in_round(levels: Levels) -> list[LiveBlock]:
    """Return the level 0 blocks of the round that is under way, oldest first."""
    return [level.blocks[0] for level in levels.level0 if level.blocks[0].start is not None]


def _from_key(blocks: Sequence[LiveBlock], high: Comparable | None) -> list[LiveBlock]:
    """Return the blocks from a key on."""
    if high is None:
        return []
    return [LiveBlock(live.block, high) for live in blocks if live.last >= high]


def _without_range(blocks: Sequence[LiveBlock], low: Comparable, high: Comparable | None) -> list[LiveBlock]:
    """Return the level 1 blocks without a key range. No block begins below the range and ends inside of it."""
    inside = [live for live in blocks if live.last >= low and (high is None or live.first < high)]
    return [live for live in blocks if live not in inside] + _from_key(inside, high)
