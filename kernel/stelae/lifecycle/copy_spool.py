"""A file with the pieces of one snapshot that have no file of their own: its log, and its exported rows.

A source writes them once, when the snapshot is taken. They stay as they are when the log is collected, its suffix is
replaced, or the replica is deleted. The file is not synced: it has no meaning after a crash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from stelae.spi.errors import Full
from stelae.spi.services import Files
from stelae.spi.wal import SnapshotUnit


class CopySpool:
    """The pieces, one after the other. One thread writes them; later several may read, one at a time.

    It takes at most half of the space that was free, because a full disk would stop the writes of every replica here.

    The constructor creates the file and its directory. Methods may block, and raise ``StorageError``; ``Full`` if there
    is not enough space. The caller must ``close`` the spool also after an error."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        files.make_directory(path.rpartition("/")[0])
        self._file = files.create(path)
        self._size_bytes = 0
        self._offsets: dict[str, int] = {}
        self._closed = False

    def add(self, pieces: Iterable[tuple[str, bytes]]) -> list[SnapshotUnit]:
        """Write pieces, each with its name. Return their descriptions."""
        units = []
        for name, data in pieces:
            self._check_space(len(data))
            self._file.pwritev([data], self._size_bytes)
            self._offsets[name] = self._size_bytes
            self._size_bytes += len(data)
            units.append(SnapshotUnit(name=name, size_bytes=len(data), digest=hashlib.sha256(data).hexdigest()))
        return units

    def _check_space(self, size_bytes: int) -> None:
        total = self._size_bytes + size_bytes
        left = self._files.space_left(self._path.rpartition("/")[0]) - size_bytes
        if left < total:
            raise Full(f"a snapshot of {total} bytes would leave only {left} bytes free", path=self._path)

    def __contains__(self, name: str) -> bool:
        return name in self._offsets

    def read(self, name: str, offset: int, size_bytes: int) -> bytes:
        """Return bytes of a piece. The caller stays within its size."""
        return self._file.pread(size_bytes, self._offsets[name] + offset)

    def close(self) -> None:
        """Close and remove the file. Closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        self._file.close()
        self._files.remove(self._path)
