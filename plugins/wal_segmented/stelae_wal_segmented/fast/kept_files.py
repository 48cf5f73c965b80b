"""The files of collected segments that a log keeps, and the steps by which such a file becomes a new segment.

A synchronous write over existing data takes half as long as one into space that is only reserved. The steps:

1. The base file records durably that the segment is collected. No reader has it open, and no reader can find it.
2. Its file is renamed to a name without meaning (``names.reusable_name``).
3. A worker renames it to the name of a future segment, writes the digest of each sector (see ``sectors``) behind the
   space of the header, and syncs. Most digests were computed when the data were written (``WriteDigests``). The worker
   reads the other sectors from the file.
4. The log adopts it as its next segment like any other file: header, sync, rename.

A crash before step 4 leaves a file whose name has no meaning. The next start removes it. A crash after step 4 leaves a
segment whose header has the checksum of the table. Its checksums are salted with its own nonce, so old bytes never pass
for its entries (durability rule 6)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import NamedTuple

from crc32c import crc32c

from stelae.spi.errors import StorageError
from stelae.spi.services import File, Files
from stelae_wal_segmented.fast.write_digests import WriteDigests
from stelae_wal_segmented.format import NEW_SPACE, SEGMENT_HEADER_BYTES
from stelae_wal_segmented.names import reusable_name
from stelae_wal_segmented.sectors import DIGEST_BYTES, SECTOR_BYTES, ReusedSpace, digests_of, space_within
from stelae_wal_segmented.segment import Segment

PIECE_BYTES = 512 << 10
"""Number of bytes of a file that are read and digested at once."""


class KeptFile(NamedTuple):
    """A kept file."""

    path: str
    noted: WriteDigests | None  #: Digests of its contents, as far as they were computed.


class KeptFiles:
    """The kept files of one log. One caller at a time: see ``stelae.spi.wal``.

    Args:
        files: the disk.
        directory: of the log.
        count_max: number of files that are kept at most; 0: none.
    """

    def __init__(self, files: Files, directory: str, count_max: int) -> None:
        self._files = files
        self._directory = directory
        self._count_max = count_max
        self._kept: list[KeptFile] = []

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, segment: Segment, noted: WriteDigests | None) -> bool:
        """Keep the file of a collected segment; return false if enough files are kept or it cannot be renamed."""
        if len(self._kept) >= self._count_max:
            return False
        path = f"{self._directory}/{reusable_name(segment.header.log.generation, segment.header.sequence)}"
        try:
            self._files.rename(segment.path, path)
        except (OSError, StorageError):
            return False
        self._kept.append(KeptFile(path, noted))
        return True

    def take(self) -> KeptFile | None:
        """Return the file that was kept last, which is most likely in the system's cache; ``None`` if none is kept."""
        return self._kept.pop() if self._kept else None

    def drop(self) -> None:
        """Remove all kept files. The next start removes those that cannot be removed now."""
        while self._kept:
            with suppress(OSError, StorageError):
                self._files.remove(self._kept.pop().path)


class ReusedFile:
    """A kept file that becomes the file of a segment. Until it has a header, it has one of two names.

    Args:
        files: the disk.
        kept: the file.
        path: the path that it gets, that of a future segment.
        size: length of the segment.

    Attributes:
        space: for the segment's header, once the table is written.
    """

    def __init__(self, files: Files, kept: KeptFile, path: str, size: int) -> None:
        self._files = files
        self._kept = kept
        self._path = path
        self._size = size
        self.space: ReusedSpace = NEW_SPACE

    def make(self, wanted: Callable[[], bool]) -> File:
        """Write the table of digests durably, as long as the file is ``wanted``; return the open file. On a worker.

        Raises:
            StorageError: the write failed, or the file was given up. The file is removed as far as possible.
        """
        with ExitStack() as undo:
            undo.callback(self.remove)
            try:
                self._files.rename(self._kept.path, self._path)
                file = self._files.open(self._path, writable=True)
            except OSError as error:  # ``remove`` was faster.
                raise StorageError(f"a kept file is gone: {error}", path=self._kept.path) from error
            undo.callback(file.close)
            self._note(file, wanted)
            undo.pop_all()
        return file

    def remove(self) -> None:
        """Remove the file under either name. The next start removes it if that fails. Any thread.

        The old name is removed first. So a worker that begins later finds no file, and a worker that was faster has
        renamed the file to the second name."""
        for path in (self._kept.path, self._path):
            with suppress(OSError, StorageError):
                self._files.remove(path)

    def _note(self, file: File, wanted: Callable[[], bool]) -> None:
        sectors, start = space_within(SEGMENT_HEADER_BYTES, min(file.size(), self._size))
        assert sectors, "a kept file is longer than a header"
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
