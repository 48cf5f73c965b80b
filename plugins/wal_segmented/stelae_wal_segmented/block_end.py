"""The end of the open segment in space that was written before: what a write there begins and ends with.

A write there is of whole blocks, so that it may go past the system's cache. It begins with what stands already in the
first of them, the same bytes once more, and ends with zeros up to the end of the last; in space that was used before,
``sectors.tail_behind`` says what comes first. Blocks, and not sectors: a disk may keep its data in larger pieces than
it takes them in. What of such a piece is not written could be lost with it when power is, and these are entries that
were acknowledged before.

What stands in the first block is known to whoever has written it in this run. Until then writes begin where the data
end, and go through the cache, which has whole pages. What is written is noted, so that the file need not be read when
its space is used again. Large groups are not copied for all this: they go through the cache, and are not noted."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.log_support.buffers import joined
from stelae.spi.services import Buffer, File
from stelae.spi.wal import Write
from stelae_wal_segmented.sectors import BLOCK_BYTES, Noted, tail_behind

JOINED_BYTES_MAX = 1 << 20
"""A group of more is written from where its bodies are."""


class BlockEnd:
    """Makes the writes of one segment. One caller at a time: see ``stelae.spi.wal``.

    Args:
        nonce: of a segment in space that was used before; ``None``: zeros were written there.
        noted: where what is written is noted, if it is.
    """

    __slots__ = ("_file", "_head", "_nonce", "_noted")

    def __init__(self, file: File, nonce: int | None, noted: Noted | None) -> None:
        self._file = file
        self._nonce = nonce
        self._noted = noted
        self._head = b""

    def write_of(self, buffers: Sequence[Buffer], at: int, size: int) -> Write:
        """The durable write of a group of that size at the end; nothing has changed yet."""
        tail = b"" if self._nonce is None else tail_behind(at + size, self._nonce)
        if size > JOINED_BYTES_MAX:
            return Write(self._file, joined([*buffers, tail]), at)
        start, end = at - len(self._head), at + size + len(tail)
        whole_blocks = start % BLOCK_BYTES == 0
        rest = bytes(-end % BLOCK_BYTES) if whole_blocks else b""
        return Write(self._file, (b"".join((self._head, *buffers, tail, rest)),), start, whole_blocks=whole_blocks)

    def note(self, write: Write, end: int) -> None:
        """Note what a write leaves that ends the data there, but for the sector that the next one writes again."""
        if self._noted is not None and len(write.buffers) == 1:
            self._noted.note(memoryview(write.buffers[0])[: end - write.offset], write.offset)

    def wrote(self, write: Write, end: int) -> None:
        """A write was made, and the data end there."""
        self._head = b""
        if len(write.buffers) == 1:
            begin = max(write.offset, end - end % BLOCK_BYTES)
            self._head = bytes(memoryview(write.buffers[0])[begin - write.offset : end - write.offset])
