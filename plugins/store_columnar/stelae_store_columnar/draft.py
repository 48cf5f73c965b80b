"""A draft: blocks that are begun while rows are applied, so that a flush finds most of its work done.

A load in key order fills memory with runs, each of them above all before it. They are encoded as they come, some
megabytes at a time; a flush that had to encode all of memory at once would hold up applying as long. No file is written
before the flush. What was drafted stays in memory as well, for readers, and because the draft may come to nothing: rows
that are not above all others end it until the next flush."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.schema import Schema
from stelae_store_columnar.block_writer import BlockWriter
from stelae_store_columnar.chunks import Chunk
from stelae_store_columnar.config import ColumnarConfig
from stelae_store_columnar.state import State

DRAFT_BYTES = 4 << 20  #: So much is encoded at a time, at least: it is as much as is applied in one group.
_UNSETTLED = 3  #: Of the newest chunks neighbours may still be put together.


class Draft:
    """What was encoded of one part of memory. Used by the applying thread alone."""

    def __init__(self) -> None:
        self.writer: BlockWriter | None = None
        self._taken: tuple[Chunk, ...] = ()
        self._rows = 0
        self._bytes = 0
        self._schema: Schema | None = None
        self._ended = False

    def due(self, state: State, config: ColumnarConfig) -> Sequence[Chunk]:
        """Return the chunks that are to be added now: enough to be worth it, and no more than go into one block."""
        if self._ended:
            return ()
        chunks = state.chunks[len(self._taken) : -_UNSETTLED]
        size_bytes = sum(chunk.size_bytes for chunk in chunks)
        if size_bytes < DRAFT_BYTES:
            return ()
        if not self._continues(state, chunks):
            self._ended, self.writer = True, None
            return ()
        # What is encoded may be larger than the values are. A block that is full would be written.
        rows = self._rows + sum(map(len, chunks))
        return (
            chunks if rows < config.block_rows_max and 2 * (self._bytes + size_bytes) < config.block_bytes_max else ()
        )

    def added(self, state: State, chunks: Sequence[Chunk], writer: BlockWriter) -> None:
        """Take note that chunks were given to a writer."""
        self.writer, self._schema = writer, state.schema
        self._taken = (*self._taken, *chunks)
        self._rows += sum(map(len, chunks))
        self._bytes += sum(chunk.size_bytes for chunk in chunks)

    def rest(self, state: State) -> Sequence[Chunk] | None:
        """Return the chunks that are not in it; ``None``: it is of no use for a flush of that state."""
        chunks = state.chunks[len(self._taken) :]
        return chunks if self.writer is not None and self._continues(state, chunks) else None

    def _continues(self, state: State, chunks: Sequence[Chunk]) -> bool:
        """Whether memory still has what was taken, and behind it these chunks, each above all before it."""
        if self._taken and (state.chunks[: len(self._taken)] != self._taken or state.schema is not self._schema):
            return False
        last = self._taken[-1].last if self._taken else None
        for chunk in chunks:
            versions = chunk.versions
            plain = chunk.ascending and versions.deleted is None and versions.partial is None
            if not plain or (last is not None and chunk.first <= last):
                return False
            last = chunk.last
        return True
