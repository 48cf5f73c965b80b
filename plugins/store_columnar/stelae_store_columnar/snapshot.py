"""Snapshots: the files of the last committed edit, which are kept until the snapshot is released."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing

from stelae.spi.services import Files
from stelae.spi.store import Edit, StoreSnapshot
from stelae.spi.wal import SnapshotUnit
from stelae_store_columnar.block_directory import BlockDirectory

_READ_BYTES = 1 << 20


class ColumnarSnapshot(StoreSnapshot):
    """A snapshot that holds its files by name.

    The first access to ``files`` reads every byte to compute the digests."""

    def __init__(self, files: Files, path: str, directory: BlockDirectory, edit: Edit, names: Sequence[str]) -> None:
        self._files = files
        self._path = path
        self._directory = directory
        self._edit = edit
        self._names = tuple(names)
        self._units: tuple[SnapshotUnit, ...] | None = None
        self._released = False
        directory.hold(self._names)

    @property
    def files(self) -> Sequence[SnapshotUnit]:
        if self._units is None:
            self._units = tuple(self._unit(name) for name in self._names)
        return self._units

    @property
    def edit(self) -> Edit:
        return self._edit

    def release(self) -> None:
        if not self._released:
            self._released = True
            self._directory.release(self._names)

    def _unit(self, name: str) -> SnapshotUnit:
        digest = hashlib.sha256()
        size_bytes = 0
        with closing(self._files.open(f"{self._path}/{name}")) as file:
            while data := file.pread(_READ_BYTES, size_bytes):
                digest.update(data)
                size_bytes += len(data)
        return SnapshotUnit(name=name, size_bytes=size_bytes, digest=digest.hexdigest())
