"""The end of an open file in space that was written before: what a write there begins and ends with.

A write there is of whole blocks, so that it may go past the system's cache. It begins with what stands already in the
first of them, the same bytes once more, and ends with zeros up to the end of the last. Blocks, and not sectors: a disk
may keep its data in larger pieces than it takes them in. What of such a piece is not written could be lost with it when
power is, and these are entries that were acknowledged before.

What stands in the first block is known to whoever has written it in this run. Until then writes begin where the data
end, and go through the cache, which has whole pages."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.log_support.buffers import between, joined
from stelae.spi.services import Buffer, File
from stelae.spi.wal import Write

BLOCK_BYTES = 4096
"""The most that a disk keeps in one piece, and a page of the system's cache."""

JOINED_BYTES_MAX = 2 << 20
"""A group of more is written from where its bodies are."""


class BlockEnd:
    """Makes the writes of one file. One caller at a time: see ``stelae.spi.wal``.

    Args:
        file: what it is written with.
        limit: where that ends. What goes beyond is no write over what is there, for which the file system has more to
            do than to write it, and goes through the cache.
        unit: a power of two up to a block. Each group is followed by zeros up to a multiple of it, so that nothing else
            is found there by whoever looks for the next group; 1: zeros are there already.
    """

    __slots__ = ("_file", "_head", "_limit", "_unit")

    def __init__(self, file: File, limit: int, *, unit: int = 1) -> None:
        self._file = file
        self._limit = limit
        self._unit = unit
        self._head = b""

    def write_of(self, buffers: Sequence[Buffer], at: int, size: int) -> Write:
        """The durable write of a group of that size at the end; nothing has changed yet.

        Returns:
            a write of one buffer, or of the group's own if it is large."""
        start, end = at - len(self._head), at + size
        rest = bytes(-end % BLOCK_BYTES)
        whole_blocks = start % BLOCK_BYTES == 0 and end + len(rest) <= self._limit
        if not whole_blocks:
            rest = bytes(-end % self._unit)
        pieces = (self._head, *buffers, rest)
        data = (b"".join(pieces),) if size <= JOINED_BYTES_MAX else joined(pieces)
        return Write(self._file, data, start, whole_blocks=whole_blocks)

    def wrote(self, write: Write, end: int) -> None:
        """A write was made, and the data end there."""
        begin = max(write.offset, end - end % BLOCK_BYTES)
        self._head = between(write.buffers, begin - write.offset, end - write.offset)
