"""The maintenance of blocks: flushes, merges, and the edits of the manifest.

An edit is proposed when every file that its manifest names is durable, contents and name. Readers see the new levels at
once. Obsolete files are removed when the edit is committed. A cursor that still needs one reads on through an open
handle."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace

from stelae.spi.errors import Full, StorageError
from stelae.spi.ids import ZERO, OpId
from stelae.spi.schema import Schema
from stelae.spi.store import Edit
from stelae_store_columnar.block import BlockReader, ColumnarBlock
from stelae_store_columnar.block_directory import BlockDirectory
from stelae_store_columnar.block_merging import BlockMerger, whole_versions
from stelae_store_columnar.config import ColumnarConfig
from stelae_store_columnar.history_floor import HistoryFloor
from stelae_store_columnar.levels import Levels, LiveBlock
from stelae_store_columnar.manifest import ColumnarManifest, ManifestBlock, decode_manifest, encode_manifest
from stelae_store_columnar.memtable import ColumnarMemtable
from stelae_store_columnar.sources import StepSize
from stelae_store_columnar.state import ColumnarState
from stelae_store_columnar.versions import combined


class BlockMaintenance:
    """Flushes, merges and edits of one store. Only the applying thread uses it, except :meth:`committed_blocks`."""

    def __init__(self, directory: BlockDirectory, reader: BlockReader, config: ColumnarConfig, schema: Schema) -> None:
        self._directory = directory
        self._reader = reader
        self._step_size = StepSize(reader.order, config.row_group_rows)
        #: Every block whose files exist, by number. Those that no level has are obsolete.
        self._blocks: dict[int, ColumnarBlock] = {}
        self._merger = BlockMerger(directory, reader, config, self._blocks)
        self._committed = Edit(manifest=b"", flushed=ZERO)
        self._flushed = ZERO
        self._schema = schema

    def opened(self, manifest: ColumnarManifest, data: bytes, flushed: OpId) -> Levels:
        """Open the blocks of a manifest, and remove all other block files.

        ``StorageError``: a block cannot be opened."""
        named = {live.number for live in (*manifest.level1, *manifest.level0)}
        self._directory.remove_orphans(named)
        for number in sorted(named):
            self._blocks[number] = ColumnarBlock.open(self._reader, self._directory.path_of(number))
        self._committed = Edit(manifest=data, flushed=flushed)
        self._flushed = flushed
        level1, level0 = (
            [LiveBlock(self._blocks[live.number], live.start) for live in lives]
            for lives in (manifest.level1, manifest.level0)
        )
        return Levels(level1, level0)

    def flushed(self, state: ColumnarState, history: HistoryFloor) -> Levels:
        """Write the memtable to blocks, and merge if too many blocks overlap. Returns the new levels.

        A merge that finds no space, or that cannot read, is left to later calls. After any other error, the blocks that
        were written are removed."""
        before = frozenset(self._blocks)
        try:
            return self._merged(self._merger.flushed(state, history) if state.chunks else state.levels, state, history)
        except BaseException:
            self._remove_blocks_except(before)
            raise

    def _merged(self, levels: Levels, state: ColumnarState, history: HistoryFloor) -> Levels:
        """Do the merge steps that a flush must do itself. Returns the levels after the last step that succeeded."""
        for _ in range(self._merger.merge_steps_due(levels)):
            if not self._merger.has_round(levels, history):
                break
            try:
                levels = self._merger.merge_step(replace(state, levels=levels, chunks=()), history)
            except StorageError as error:
                # The rows are in blocks, so the flush need not fail. After it, the blocks that the earlier steps have
                # replaced are removed, which makes space. The next merge tries to read again (ADR 56).
                if not isinstance(error, Full) and type(error) is not StorageError:
                    raise
                break
        return levels

    def _remove_blocks_except(self, kept: Collection[int]) -> None:
        """Remove the blocks that are not in ``kept``. No reader has seen them, and no manifest names them."""
        for number in [number for number in self._blocks if number not in kept]:
            del self._blocks[number]
            with suppress(StorageError, OSError):  # What cannot be removed now is removed when the store is opened.
                self._directory.remove(self._directory.names_of(number))

    def compact(self, state: ColumnarState, history: HistoryFloor) -> Levels | None:
        """Do one step of a merge, or of dropping superfluous versions. Returns the new levels; ``None``: nothing to do.

        New blocks have the columns of the schema at the last flush. A column that was dropped since then may be needed
        again: a restart begins at the last flush and serves before it has applied all entries after it."""
        state = replace(state, schema=self._schema, adapter=state.adapter.for_schema(self._schema))
        if self._merger.has_round(state.levels, history):
            return self._merger.merge_step(state, history)
        live = self._merger.garbage(state.levels, history)
        if live is not None:
            return self._merger.rewrite(state, live, history)
        small_neighbours = self._merger.small_neighbours(state.levels)
        return self._merger.merge_neighbours(state, small_neighbours, history) if small_neighbours else None

    def without_garbage(
        self, memory: ColumnarMemtable, state: ColumnarState, history: HistoryFloor
    ) -> ColumnarMemtable:
        """Return the memtable without the versions that no read at or above the floor can see."""
        resolver = state.resolver(state.schema.layout.ids)
        steps = whole_versions(state, state.chunks, (None, None), self._step_size, history)
        needed = [resolver.needed([versions], history.timestamp, not state.levels.blocks) for versions in steps]
        return memory.without_garbage(combined(needed, resolver.types), history.timestamp)

    def note_flush(self, applied: OpId, schema: Schema) -> None:
        """Note that the entries up to ``applied`` are flushed, under the schema in force."""
        self._flushed, self._schema = applied, schema

    def propose(self, levels: Levels, schemas: Mapping[int, Schema], stamp: int, floor: int) -> Edit | None:
        """Return the edit that makes the levels durable, or ``None`` if nothing changed."""
        flushed = self._flushed
        manifest = ColumnarManifest(
            next_number=self._directory.next_number,
            floor=floor,
            stamp=stamp,
            schema_version=self._schema.version,
            schemas=tuple(schemas[version] for version in sorted(schemas)),
            level1=tuple(map(self._manifest_block, levels.level1.blocks)),
            level0=tuple(self._manifest_block(level.blocks[0]) for level in levels.level0),
        )
        if flushed == self._committed.flushed and not self._changed(manifest):
            return None
        live = {self._directory.number_of(live.block.path) for live in levels.blocks}
        deleted = sorted(self._blocks.keys() - live)
        obsolete = tuple(name for number in deleted for name in self._directory.names_of(number))
        return Edit(manifest=encode_manifest(manifest), flushed=flushed, obsolete=obsolete)

    def on_commit(self, edit: Edit) -> None:
        """Note that an edit is durable, and remove its obsolete files.

        Nothing depends on the removal. Files that cannot be held open or removed now, for want of handles for example,
        are obsolete in the next edit, too. The next start removes them otherwise."""
        self._committed = edit
        for number in sorted({int(name.partition(".")[0]) for name in edit.obsolete}):
            block = self._blocks.get(number)
            with suppress(StorageError, OSError):
                if block is not None:
                    block.hold_open()
                self._directory.remove(self._directory.names_of(number))
                self._blocks.pop(number, None)

    def committed_blocks(self) -> tuple[Edit, list[int]]:
        """Return the last committed edit, without its obsolete files, and the numbers of its blocks."""
        edit = self._committed
        manifest = decode_manifest(edit.manifest, "")
        needed = Edit(manifest=edit.manifest, flushed=edit.flushed)
        return needed, sorted({live.number for live in (*manifest.level1, *manifest.level0)})

    def _manifest_block(self, live: LiveBlock) -> ManifestBlock:
        return ManifestBlock(self._directory.number_of(live.block.path), live.start)

    def _changed(self, manifest: ColumnarManifest) -> bool:
        """Return true if the blocks or the schema in force differ from the last committed edit."""
        if not self._committed.manifest:
            return bool(manifest.level1 or manifest.level0)
        last = decode_manifest(self._committed.manifest, "")
        now, before = ((one.schema_version, one.level1, one.level0) for one in (manifest, last))
        return now != before
