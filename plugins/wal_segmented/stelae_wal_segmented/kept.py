"""Files of collected segments that a log keeps, and how one of them becomes the space of a next segment.

A synchronous write into space that was written before costs half of one into space that is only reserved, and a
collected segment is written space for nothing. This is its way:

1. The base file says, durably, that the segment is collected. Nobody reads it, and nobody finds it any more.
2. Its file gets a name that means nothing (``names.kept_name``), and waits.
3. A worker gives it the name of a segment in the making, writes what stands in each sector (see ``sectors``) behind
   where the header will stand, and syncs that. Of a segment that was begun in used space itself most of it is known
   (``sectors.Noted``); the rest is read.
4. The log takes it as the space of its next segment: header, sync, name. From there on it is a segment like others.

A crash before 4 leaves a file whose name means nothing, whatever stands in it: start-up removes it. A crash behind 4
leaves a segment whose header ties it to the table. Its checksums begin with a nonce of its own, so nothing that stood
there before passes for its entries (durability rule 6)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import NamedTuple

from crc32c import crc32c

from stelae.spi.errors import StorageError
from stelae.spi.services import File, Files
from stelae_wal_segmented.format import NEW_SPACE, SEGMENT_HEADER_BYTES
from stelae_wal_segmented.names import kept_name
from stelae_wal_segmented.sectors import (
    DIGEST_BYTES,
    PIECE_BYTES,
    SECTOR_BYTES,
    Noted,
    UsedSpace,
    digests_of,
    space_within,
)
from stelae_wal_segmented.segment import Segment


class Kept(NamedTuple):
    """A file that is kept, and what is known of what stands in it."""

    path: str
    noted: Noted | None


class KeptFiles:
    """What one log keeps. One caller at a time: see ``stelae.spi.wal``.

    Args:
        count_max: so many at a time; 0 for none.
    """

    def __init__(self, files: Files, directory: str, count_max: int) -> None:
        self._files = files
        self._directory = directory
        self._count_max = count_max
        self._kept: list[Kept] = []

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, segment: Segment) -> bool:
        """Keep the file of a segment that is collected and that nobody holds; false if that is not to be."""
        if len(self._kept) >= self._count_max:
            return False
        path = f"{self._directory}/{kept_name(segment.header.log.generation, segment.header.sequence)}"
        try:
            self._files.rename(segment.path, path)
        except (OSError, StorageError):
            return False
        self._kept.append(Kept(path, segment.noted))
        return True

    def take(self) -> Kept | None:
        """Give the file away that was kept last: the system is the likeliest to have it in memory."""
        return self._kept.pop() if self._kept else None

    def drop(self) -> None:
        """Remove all; left-overs go at the next start."""
        while self._kept:
            with suppress(OSError, StorageError):
                self._files.remove(self._kept.pop().path)


class UsedFile:
    """A kept file on its way to be the space of a segment. It has one of two names until that has a header.

    Args:
        kept: the file.
        path: the path that it gets, of a segment in the making.
        size: length of the segment.

    Attributes:
        space: for the segment's header, once it is made.
    """

    def __init__(self, files: Files, kept: Kept, path: str, size: int) -> None:
        self._files = files
        self._kept = kept
        self._path = path
        self._size = size
        self.space: UsedSpace = NEW_SPACE

    def make(self, wanted: Callable[[], bool]) -> File:
        """Note durably what stands in the file, as long as it is ``wanted``; return it, open. On a worker.

        Raises:
            StorageError: it could not be, or was given up, and the file is gone as far as possible.
        """
        with ExitStack() as undo:
            undo.callback(self.remove)
            try:
                self._files.rename(self._kept.path, self._path)
                file = self._files.open(self._path, writable=True)
            except OSError as error:  # Removed before or between: see ``remove``.
                raise StorageError(f"a kept file is not there any more: {error}", path=self._kept.path) from error
            undo.callback(file.close)
            self._note(file, wanted)
            undo.pop_all()
        return file

    def remove(self) -> None:
        """Remove what is left under either name; left-overs go at the next start. On any thread.

        The first name goes first: a worker that begins later finds nothing, and one that was faster left the other."""
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
        self.space = UsedSpace(sectors, crc32c(digests), start)
