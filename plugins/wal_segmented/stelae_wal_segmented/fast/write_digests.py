"""Digests of what is written to a segment, taken from memory while the disk writes it.

When the file of the segment is used again, its table (``stelae_wal_segmented.sectors``) needs them; so nothing is read
back."""

from __future__ import annotations

import threading
from weakref import WeakSet

from stelae.spi.services import Buffer
from stelae_wal_segmented.sectors import DIGEST_BYTES, SECTOR_BYTES, digests_of, factors


class WriteDigests:
    """Digests of what is written to a file, taken while that is at hand: nobody need read it for them later.

    Without a gap; what stands behind one is not noted.

    Args:
        data_start: where the data begin; what is noted begins with the next sector.
        size: of the file; what stands behind it is not noted.

    Attributes:
        start: a boundary of sectors.
        bytes_max: what it takes in memory, once the file is full.
    """

    __slots__ = ("__weakref__", "_digests", "bytes_max", "start")

    def __init__(self, data_start: int, size: int) -> None:
        self.start = start = data_start + -data_start % SECTOR_BYTES
        self.bytes_max = (size - start) // SECTOR_BYTES * DIGEST_BYTES
        self._digests = bytearray()

    @property
    def end(self) -> int:
        """Where the sectors end that are noted."""
        return self.start + len(self._digests) // DIGEST_BYTES * SECTOR_BYTES

    def note(self, data: Buffer, at: int) -> None:
        """Note the whole sectors of ``data``, which stand at ``at``, in place of what was noted of them before."""
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
        """The digests from one boundary of sectors on, as far as they are noted and not beyond another."""
        if start < self.start:
            return b""
        first, stop = ((at - self.start) // SECTOR_BYTES * DIGEST_BYTES for at in (start, max(start, end)))
        return bytes(self._digests[first:stop])


class DigestPool:
    """Makes ``WriteDigests`` for all logs of an engine, as long as what they take in memory together is within a bound.

    Args:
        bytes_max: the bound.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._made: WeakSet[WriteDigests] = WeakSet()
        self._lock = threading.Lock()

    def make(self, data_start: int, size: int) -> WriteDigests | None:
        """One for a file of that size whose data begin there; ``None`` if there is no more memory for it."""
        factors()  # It may have to import: here a thread waits for that, and where it is noted the event loop would.
        noted = WriteDigests(data_start, size)
        with self._lock:
            if sum([one.bytes_max for one in self._made]) + noted.bytes_max > self._bytes_max:
                return None
            self._made.add(noted)
        return noted
