"""Snapshots: the files of the last committed edit, which are kept until the snapshot is released."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from stelae.spi.services import Files
from stelae.spi.store import Edit, StoreSnapshot
from stelae.spi.wal import SnapshotUnit
from stelae_store_columnar.block_directory import BlockDirectory
from stelae_store_columnar.block_index import decode_index


class ColumnarSnapshot(StoreSnapshot):
    """A snapshot that holds the files of its blocks by name.

    The first access to ``files`` reads the indexes of the blocks. They have the digests of the Parquet files as these
    were written, so a copy of a file that was damaged since does not have its digest. ``Corrupt``: an index is damaged.
    """

    def __init__(self, files: Files, directory: BlockDirectory, edit: Edit, blocks: Sequence[int]) -> None:
        self._files = files
        self._directory = directory
        self._edit = edit
        self._blocks = tuple(blocks)
        self._names = [name for number in blocks for name in directory.names_of(number)]
        self._units: tuple[SnapshotUnit, ...] | None = None
        self._released = False
        directory.hold(self._names)

    @property
    def files(self) -> Sequence[SnapshotUnit]:
        if self._units is None:
            self._units = tuple(unit for number in self._blocks for unit in self._units_of(number))
        return self._units

    @property
    def edit(self) -> Edit:
        return self._edit

    def release(self) -> None:
        if not self._released:
            self._released = True
            self._directory.release(self._names)

    def _units_of(self, number: int) -> tuple[SnapshotUnit, SnapshotUnit]:
        rows_name, index_name = self._directory.names_of(number)
        path = f"{self._directory.path_of(number)}.index"
        data = self._files.read_bytes(path)
        index = decode_index(data, path)
        return (
            SnapshotUnit(name=rows_name, size_bytes=index.file_bytes, digest=index.digest),
            SnapshotUnit(name=index_name, size_bytes=len(data), digest=hashlib.sha256(data).hexdigest()),
        )
