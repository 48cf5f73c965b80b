"""Files of collected segments that a log keeps, and the steps by which one becomes a new segment.

A synchronous write over data costs half of one into space that is only reserved. The steps:

1. The base file says durably that the segment is collected. No reader has it open, and no reader can find it.
2. Its file is renamed to a name that means nothing (``names.kept_name``).
3. A worker renames it to the name of a segment in the making, writes the digest of each sector (see ``sectors``) behind
   the place of the header, and syncs. Most digests were noted when the data were written (``WriteDigests``); the worker
   reads the others from the file.
4. The log adopts it as its next segment: header, sync, rename, like any other segment.

A crash before 4 leaves a file whose name means nothing; the next start removes it. A crash after 4 leaves a segment
whose header has the checksum of the table. Its checksums are salted with its own nonce, so old bytes never pass for its
entries (durability rule 6)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import NamedTuple

from crc32c import crc32c

from stelae.spi.errors import StorageError
from stelae.spi.services import File, Files
from stelae_wal_segmented.fast.write_digests import WriteDigests
from stelae_wal_segmented.format import NEW_SPACE, SEGMENT_HEADER_BYTES
from stelae_wal_segmented.names import kept_name
from stelae_wal_segmented.sectors import DIGEST_BYTES, SECTOR_BYTES, ReusedSpace, digests_of, space_within
from stelae_wal_segmented.segment import Segment

PIECE_BYTES = 512 << 10
"""So much of a file is read and digested at once."""


class KeptFile(NamedTuple):
    """A file that is kept, and the digests of its contents as far as they were noted."""

    path: str
    noted: WriteDigests | None


class KeptFiles:
    """What one log keeps. One caller at a time: see ``stelae.spi.wal``.

    Args:
        count_max: so many at a time; 0 for none.
    """

    def __init__(self, files: Files, directory: str, count_max: int) -> None:
        self._files = files
        self._directory = directory
        self._count_max = count_max
        self._kept: list[KeptFile] = []

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, segment: Segment, noted: WriteDigests | None) -> bool:
        """Keep the file of a collected segment; false if there are enough, or it cannot be renamed."""
        if len(self._kept) >= self._count_max:
            return False
        path = f"{self._directory}/{kept_name(segment.header.log.generation, segment.header.sequence)}"
        try:
            self._files.rename(segment.path, path)
        except (OSError, StorageError):
            return False
        self._kept.append(KeptFile(path, noted))
        return True

    def take(self) -> KeptFile | None:
        """Take the file that was kept last, which is most likely in the system's cache."""
        return self._kept.pop() if self._kept else None

    def drop(self) -> None:
        """Remove all; the next start removes what is left."""
        while self._kept:
            with suppress(OSError, StorageError):
                self._files.remove(self._kept.pop().path)


class ReusedFile:
    """A kept file that becomes the file of a segment. It has one of two names until it has a header.

    Args:
        kept: the file.
        path: the path that it gets, of a segment in the making.
        size: length of the segment.

    Attributes:
        space: for the segment's header, once it is made.
    """

    def __init__(self, files: Files, kept: KeptFile, path: str, size: int) -> None:
        self._files = files
        self._kept = kept
        self._path = path
        self._size = size
        self.space: ReusedSpace = NEW_SPACE

    def make(self, wanted: Callable[[], bool]) -> File:
        """Write the table of digests durably, as long as the file is ``wanted``; return it, open. On a worker.

        Raises:
            StorageError: that failed, or the file was given up; it is removed as far as possible.
        """
        with ExitStack() as undo:
            undo.callback(self.remove)
            try:
                self._files.rename(self._kept.path, self._path)
                file = self._files.open(self._path, writable=True)
            except OSError as error:  # Removed before or between: see ``remove``.
                raise StorageError(f"a kept file is gone: {error}", path=self._kept.path) from error
            undo.callback(file.close)
            self._note(file, wanted)
            undo.pop_all()
        return file

    def remove(self) -> None:
        """Remove the file under either name; the next start removes what is left. On any thread.

        The first name goes first: a worker that begins later finds no file, one that was faster has renamed it."""
        for path in (self._kept.path, self._path):
            with suppress(OSError, StorageError):
                self._files.remove(path)

    def _note(self, file: File, wanted: Callable[[], bool]) -> None:
        sectors, start = space_within(SEGMENT_HEADER_BYTES, min(file.size(), self._size))
        assert sectors, "what is kept is longer than a header"
        end = start + sectors * SECTOR_BYTES
        file.truncate(end)
        pieces = [self._kept.noted.between(start, end)] if self._kept.noted is not None else []
        read_from = start + sum(map(len, pieces)) // DIGEST_BYTES * SECTOR_BYTES
        for at in range(read_from, end, PIECE_BYTES):
            if not wanted():
                return
            pieces.append(digests_of(file.pread(min(PIECE_BYTES, end - at), at)))
        digests = b"".join(pieces)
        file.pwritev([bytes(SEGMENT_HEADER_BYTES), digests], 0)
        file.sync()
        self.space = ReusedSpace(sectors, crc32c(digests), start)
