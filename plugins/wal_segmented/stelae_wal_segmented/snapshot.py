"""An immutable view of a log: where its entries stand, and open files to read them from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stelae.spi.errors import CallerError, Compacted
from stelae.spi.log import Entry
from stelae.spi.services import File
from stelae.spi.wal import SnapshotUnit, WalSnapshot
from stelae_wal_segmented.log import TabletLog
from stelae_wal_segmented.reader import Piece, find, read_piece

_PIECE_BYTES = 1 << 20


class SegmentedSnapshot(WalSnapshot):
    """Holds its files open, so that removing their names takes nothing from it."""

    def __init__(self, pieces: Sequence[tuple[Piece, File]]) -> None:
        self._pieces = list(pieces)

    @property
    def units(self) -> Sequence[SnapshotUnit]:
        """None: segments cross as entries, not as files."""
        return ()

    def entries(self) -> Iterator[Entry]:
        """Every entry of the view in index order, checksums verified."""
        for piece, file in self._pieces:
            yield from read_piece(file, piece)

    def release(self) -> None:
        """Close the files. Releasing twice is harmless."""
        for file in {id(file): file for _, file in self._pieces}.values():
            file.close()
        self._pieces.clear()


def take_snapshot(log: TabletLog, first: int) -> SegmentedSnapshot:
    """Take a view from ``first`` to the present last entry.

    Raises:
        Compacted, CallerError, Corrupt: as ``read``.
    """
    with log.lock:
        end = log.last.index + 1
        if first <= log.base.base.index:
            raise Compacted(log.base.base)
    if first > end:
        raise CallerError(f"log {log.log} ends at {end - 1}: no view begins at {first}")
    pieces: list[tuple[Piece, File]] = []
    files: dict[str, File] = {}
    try:
        while first < end:
            piece = find(log, first, end, _PIECE_BYTES)
            path = piece.segment.path
            if path not in files:
                try:
                    files[path] = log.setting.files.open(path)
                except FileNotFoundError:
                    continue
            pieces.append((piece, files[path]))
            first += len(piece.offsets)
    except BaseException:
        SegmentedSnapshot(pieces).release()
        raise
    return SegmentedSnapshot(pieces)
