"""Writes of whole blocks of 4096 bytes over space that was written before. Only the fast engines use it.

Direct I/O needs whole blocks (``stelae.machine.fast_log``). A write begins with the bytes that its first block already
has, and repeats them unchanged. It ends with zeros up to the end of its last block. It consists of blocks and not of
sectors, because a disk may store data in larger units than it accepts. Then a power failure could lose the rest of such
a unit, which has entries that were acknowledged before.

The bytes of the first block are known only if it was written in this run. Until then, writes begin where the data end
and go through the system's cache, which always writes whole pages."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.services import Buffer, File
from stelae.spi.wal import Write
from stelae_shared.log_files.buffers import between, joined

BLOCK_BYTES = 4096
"""The largest unit in which disks store data, and a page of the system's cache."""

JOINED_BYTES_MAX = 2 << 20
"""Groups above this length are not copied into one buffer."""


class WholeBlocks:
    """Makes the writes of one file. One caller at a time: see ``stelae.spi.wal``.

    Args:
        file: the file.
        limit: offset where the space ends that was written before. A write beyond it also changes the file's metadata,
            and goes through the cache.
        unit: a power of two, at most a block. Zeros follow each group up to a multiple of it, so that a scan for the
            next group finds nothing else there. 1: the space has zeros already.
    """

    __slots__ = ("_file", "_head", "_limit", "_unit")

    def __init__(self, file: File, limit: int, *, unit: int = 1) -> None:
        self._file = file
        self._limit = limit
        self._unit = unit
        self._head = b""

    def write_of(self, buffers: Sequence[Buffer], at: int, size: int) -> Write:
        """Return the durable write of a group of ``size`` bytes at the end, which is offset ``at``. Changes nothing.

        The write has one buffer, or the buffers of the group if it is large."""
        start, end = at - len(self._head), at + size
        rest = bytes(-end % BLOCK_BYTES)
        whole_blocks = start % BLOCK_BYTES == 0 and end + len(rest) <= self._limit
        if not whole_blocks:
            rest = bytes(-end % self._unit)
        pieces = (self._head, *buffers, rest)
        data = (b"".join(pieces),) if size <= JOINED_BYTES_MAX else joined(pieces)
        return Write(self._file, data, start, whole_blocks=whole_blocks)

    def wrote(self, write: Write, end: int) -> None:
        """Record that a write was made and that the data now end at ``end``."""
        begin = max(write.offset, end - end % BLOCK_BYTES)
        self._head = between(write.buffers, begin - write.offset, end - write.offset)
