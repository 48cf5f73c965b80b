"""An immutable view of a log: the positions of its entries, and open files to read them from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stelae.spi.errors import CallerError, Compacted
from stelae.spi.log import Entry
from stelae.spi.services import File
from stelae.spi.wal import SnapshotUnit, WalSnapshot
from stelae_wal_shared.engine_state import EngineState
from stelae_wal_shared.reader import SharedRead, check_removed, find, read_entries
from stelae_wal_shared.tablet_log import SharedTabletLog


class SharedSnapshot(WalSnapshot):
    """A view that holds its segments open, so it stays readable when they are removed."""

    def __init__(self, pieces: list[SharedRead], files: dict[str, File]) -> None:
        self._pieces = pieces
        self._files = files

    @property
    def units(self) -> Sequence[SnapshotUnit]:
        """Empty: a copy of this log gets entries and not files, because the segments have other logs too."""
        return ()

    def entries(self) -> Iterator[Entry]:
        """Every entry of the view in index order, checksums verified."""
        for piece in self._pieces:
            yield from read_entries(self._files[piece.segment.path], piece)

    def release(self) -> None:
        """Close the files. Releasing twice is harmless."""
        for file in self._files.values():
            file.close()
        self._files = {}
        self._pieces = []


def take_snapshot(state: EngineState, log: SharedTabletLog, first: int) -> SharedSnapshot:
    """Take a view from ``first`` to the present last entry.

    Raises:
        Compacted, CallerError, Corrupt: as ``read``.
    """
    with state.lock:
        end = log.last.index + 1
        if first <= log.base.index:
            raise Compacted(log.base)
    if first > end:
        raise CallerError(f"log {log.name} ends at {end - 1}: no view begins at {first}")
    pieces: list[SharedRead] = []
    files: dict[str, File] = {}
    try:
        while first < end:
            piece = find(state, log, first, end, 1 << 62)
            path = piece.segment.path
            if path not in files:
                try:
                    files[path] = state.files.open(path)
                except FileNotFoundError:
                    check_removed(state, log, piece.segment, first)
                    continue
            pieces.append(piece)
            first += len(piece.spans.offsets)
    except BaseException:
        SharedSnapshot(pieces, files).release()
        raise
    return SharedSnapshot(pieces, files)
