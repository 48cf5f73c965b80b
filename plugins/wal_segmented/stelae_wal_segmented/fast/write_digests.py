"""Digests of the sectors of a segment, computed from memory while the disk writes them.

When the file of the segment is used again, its table (``stelae_wal_segmented.sectors``) needs these digests. So the
file need not be read again."""

from __future__ import annotations

import threading
from weakref import WeakSet

from stelae.spi.services import Buffer
from stelae_wal_segmented.sectors import DIGEST_BYTES, SECTOR_BYTES, digests_of, factors


class WriteDigests:
    """The digests of the sectors that were written to one file.

    They have no gap: sectors behind a gap are ignored.

    Args:
        data_start: offset where the data begin. The first digest is of the next complete sector.
        size: length of the file. Sectors behind it are ignored.

    Attributes:
        start: offset of the first sector.
        bytes_max: memory in bytes that the digests of the full file take.
    """

    __slots__ = ("__weakref__", "_digests", "bytes_max", "start")

    def __init__(self, data_start: int, size: int) -> None:
        self.start = start = data_start + -data_start % SECTOR_BYTES
        self.bytes_max = (size - start) // SECTOR_BYTES * DIGEST_BYTES
        self._digests = bytearray()

    @property
    def end(self) -> int:
        """Offset behind the last sector that has a digest."""
        return self.start + len(self._digests) // DIGEST_BYTES * SECTOR_BYTES

    def note(self, data: Buffer, at: int) -> None:
        """Add the digests of the complete sectors in ``data``, which is at offset ``at``. Replaces earlier digests."""
        skipped = -at % SECTOR_BYTES
        sectors, at = (len(data) - skipped) // SECTOR_BYTES, at + skipped
        if self.start <= at <= self.end:
            place = (at - self.start) // SECTOR_BYTES * DIGEST_BYTES
            sectors = min(sectors, (self.bytes_max - place) // DIGEST_BYTES)
            if sectors <= 0:
                return
            digests = digests_of(memoryview(data)[skipped : skipped + sectors * SECTOR_BYTES])
            self._digests[place : place + len(digests)] = digests

    def between(self, start: int, end: int) -> bytes:
        """Return the digests of the sectors between two boundaries, as far as they are known."""
        if start < self.start:
            return b""
        first, stop = ((at - self.start) // SECTOR_BYTES * DIGEST_BYTES for at in (start, max(start, end)))
        return bytes(self._digests[first:stop])


class DigestPool:
    """Makes ``WriteDigests`` for all logs of an engine, within a bound on their memory.

    Args:
        bytes_max: the bound in bytes.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._made: WeakSet[WriteDigests] = WeakSet()
        self._lock = threading.Lock()

    def make(self, data_start: int, size: int) -> WriteDigests | None:
        """Return digests for a file of that size, whose data begin at ``data_start``; ``None`` above the bound."""
        factors()  # This may import numpy. Here a thread waits for the import; later the event loop would.
        noted = WriteDigests(data_start, size)
        with self._lock:
            if sum([one.bytes_max for one in self._made]) + noted.bytes_max > self._bytes_max:
                return None
            self._made.add(noted)
        return noted
