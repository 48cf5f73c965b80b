"""Upkeep: from what is in memory to blocks, from blocks to fewer blocks, and the edits that say so.

An edit is proposed after every file that its manifest names is durable, names and contents. The levels that readers see
change at once; files that an edit makes superfluous are removed when it is committed, and a cursor that still needs one
reads on through an open handle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stelae.spi.ids import ZERO, OpId
from stelae.spi.schema import Schema
from stelae.spi.store import Edit
from stelae_store_columnar.block import Block, BlockReader
from stelae_store_columnar.config import ColumnarConfig
from stelae_store_columnar.directory import SUFFIXES, BlockDirectory
from stelae_store_columnar.levels import Levels, Live
from stelae_store_columnar.manifest import LiveBlock, Manifest, decode_manifest, encode_manifest
from stelae_store_columnar.memory import MemoryPart
from stelae_store_columnar.merging import Merger, whole_versions
from stelae_store_columnar.parts import Cut
from stelae_store_columnar.state import State
from stelae_store_columnar.versions import combined


class Upkeep:
    """Used by the applying thread alone, but for :meth:`committed_files`."""

    def __init__(self, directory: BlockDirectory, reader: BlockReader, config: ColumnarConfig, schema: Schema) -> None:
        self._directory = directory
        self._reader = reader
        self._cut = Cut(reader.order, config.row_group_rows)
        self._merger = Merger(directory, reader, config)
        self._committed = Edit(manifest=b"", flushed=ZERO)
        self._flushed = ZERO
        self._schema = schema
        self._blocks: dict[int, Block] = {}

    def opened(self, manifest: Manifest, data: bytes, flushed: OpId) -> Levels:
        """Open the blocks of a manifest and remove all others. ``StorageError``: they are not as it says."""
        named = {live.number for live in (*manifest.settled, *manifest.fresh)}
        self._directory.remove_orphans(named)
        self._blocks = {n: Block.open(self._reader, self._directory.path_of(n)) for n in sorted(named)}
        self._committed = Edit(manifest=data, flushed=flushed)
        self._flushed = flushed
        settled, fresh = (
            [Live(self._blocks[live.number], live.start) for live in lives]
            for lives in (manifest.settled, manifest.fresh)
        )
        return Levels(settled, fresh)

    def flushed(self, state: State, floor: int) -> Levels:
        """Write out what is in memory, and merge if too many blocks overlap; return the levels with it."""
        levels = self._merger.flushed(state, floor) if state.chunks else state.levels
        for _ in range(self._merger.pieces_due(levels)):
            if not self._merger.wants_round(levels, floor):
                break
            levels = self._merger.merged(replace(state, levels=levels, chunks=()), floor)
        return levels

    def compacted(self, state: State, floor: int) -> Levels | None:
        """Do one piece of merging, or of dropping what the floor has made superfluous; ``None``: nothing to do.

        Blocks keep the columns of the schema that held at the last flush. A column that was dropped since may come to
        be needed again: a restart goes back to the flush, and serves before it has seen all entries behind it."""
        state = replace(state, schema=self._schema, fitting=state.fitting.of(self._schema))
        if self._merger.wants_round(state.levels, floor):
            return self._merger.merged(state, floor)
        live = self._merger.garbage(state.levels, floor)
        if live is not None:
            return self._merger.rewritten(state, live, floor)
        crumbs = self._merger.crumbs(state.levels)
        return self._merger.swept(state, crumbs, floor) if crumbs else None

    def without_garbage(self, memory: MemoryPart, state: State, floor: int) -> MemoryPart:
        """Return what is in memory without what nobody can see behind the floor."""
        resolver = state.resolver(state.schema.layout.ids)
        steps = whole_versions(state, state.chunks, (None, None), self._cut)
        kept = [resolver.needed([versions], floor, not state.levels.blocks) for versions in steps]
        return memory.without_garbage(combined(kept, resolver.types), floor)

    def flushed_at(self, applied: OpId, schema: Schema) -> None:
        """Take note that memory was written out up to an entry, under the schema that held then."""
        self._flushed, self._schema = applied, schema

    def propose(self, levels: Levels, schemas: Mapping[int, Schema], stamp: int, floor: int) -> Edit | None:
        """Return the edit that makes levels durable; ``None`` if it would say nothing new."""
        flushed = self._flushed
        manifest = Manifest(
            next_number=self._directory.next_number,
            floor=floor,
            stamp=stamp,
            schema_version=self._schema.version,
            schemas=tuple(schemas[version] for version in sorted(schemas)),
            settled=tuple(map(self._named, levels.settled.blocks)),
            fresh=tuple(self._named(level.blocks[0]) for level in levels.fresh),
        )
        if flushed == self._committed.flushed and not self._differs(manifest):
            return None
        live = {self._directory.number_of(live.block.path): live.block for live in levels.blocks}
        self._blocks.update(live)
        gone = [number for number in self._blocks if number not in live]
        obsolete = tuple(f"{number:08d}{suffix}" for number in sorted(gone) for suffix in SUFFIXES)
        return Edit(manifest=encode_manifest(manifest), flushed=flushed, obsolete=obsolete)

    def committed(self, edit: Edit) -> None:
        """An edit is durable: remove what it made superfluous."""
        self._committed = edit
        for number in {int(name.partition(".")[0]) for name in edit.obsolete}:
            block = self._blocks.pop(number, None)
            if block is not None:
                block.keep()
        self._directory.remove(edit.obsolete)

    def committed_files(self) -> tuple[Edit, list[str]]:
        """Return the last committed edit, and the files that belong to it."""
        edit = self._committed
        manifest = decode_manifest(edit.manifest, "")
        numbers = sorted({live.number for live in (*manifest.settled, *manifest.fresh)})
        kept = Edit(manifest=edit.manifest, flushed=edit.flushed)
        return kept, [f"{number:08d}{suffix}" for number in numbers for suffix in SUFFIXES]

    def _named(self, live: Live) -> LiveBlock:
        return LiveBlock(self._directory.number_of(live.block.path), live.start)

    def _differs(self, manifest: Manifest) -> bool:
        """Whether other blocks are live, or another schema is in force, than was committed last."""
        if not self._committed.manifest:
            return bool(manifest.settled or manifest.fresh)
        last = decode_manifest(self._committed.manifest, "")
        now, before = ((one.schema_version, one.settled, one.fresh) for one in (manifest, last))
        return now != before
