"""An immutable view of a log: where its entries stand, and open files to read them from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stelae.spi.errors import CallerError, Compacted
from stelae.spi.log import Entry
from stelae.spi.services import File
from stelae.spi.wal import SnapshotUnit, WalSnapshot
from stelae_wal_shared.book import Book
from stelae_wal_shared.reader import SharedRead, check_removed, find, read_piece
from stelae_wal_shared.tablet_log import SharedTabletLog


class SharedSnapshot(WalSnapshot):
    """Holds its segments open, so that removing their names takes nothing from it."""

    def __init__(self, pieces: list[SharedRead], files: dict[str, File]) -> None:
        self._pieces = pieces
        self._files = files

    @property
    def units(self) -> Sequence[SnapshotUnit]:
        """None: the segments hold other logs as well, so entries cross, not files."""
        return ()

    def entries(self) -> Iterator[Entry]:
        """Every entry of the view in index order, checksums verified."""
        for piece in self._pieces:
            yield from read_piece(self._files[piece.segment.path], piece)

    def release(self) -> None:
        """Close the files. Releasing twice is harmless."""
        for file in self._files.values():
            file.close()
        self._files = {}
        self._pieces = []


def take_snapshot(book: Book, log: SharedTabletLog, first: int) -> SharedSnapshot:
    """Take a view from ``first`` to the present last entry.

    Raises:
        Compacted, CallerError, Corrupt: as ``read``.
    """
    with book.lock:
        end = log.last.index + 1
        if first <= log.base.index:
            raise Compacted(log.base)
    if first > end:
        raise CallerError(f"log {log.name} ends at {end - 1}: no view begins at {first}")
    pieces: list[SharedRead] = []
    files: dict[str, File] = {}
    try:
        while first < end:
            piece = find(book, log, first, end, 1 << 62)
            path = piece.segment.path
            if path not in files:
                try:
                    files[path] = book.files.open(path)
                except FileNotFoundError:
                    check_removed(book, log, piece.segment, first)
                    continue
            pieces.append(piece)
            first += len(piece.places.offsets)
    except BaseException:
        SharedSnapshot(pieces, files).release()
        raise
    return SharedSnapshot(pieces, files)
