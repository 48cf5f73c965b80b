"""A Parquet file for pyarrow that checks the checksum of every column chunk before it returns a byte of it."""

from __future__ import annotations

from crc32c import crc32c

from stelae.rows.chunk_file import ChunkFile
from stelae.spi.errors import Corrupt
from stelae.spi.services import File
from stelae_store_columnar.block_index import BlockIndex, ColumnChunk


class VerifiedFile(ChunkFile):
    """The file of one Parquet reader. ``file`` is open only during a read, so an idle block has no open handle."""

    def __init__(self, index: BlockIndex, path: str) -> None:
        super().__init__(index.file_bytes)
        self.file: File | None = None
        self._index = index
        self._path = path

    def read(self, size: int = -1) -> bytes:
        chunk = self._index.by_offset.get(self._position)
        if chunk is None or size > chunk.size_bytes:
            raise Corrupt(f"no column chunk has {size} bytes here", path=self._path, offset=self._position)
        self._position += size
        assert self.file is not None
        return read_chunk(self.file, chunk, self._path)[:size]


def read_chunk(file: File, chunk: ColumnChunk, path: str) -> bytes:
    """Read a chunk of a file. ``Corrupt``: it is cut off, or its checksum is wrong."""
    data = file.pread(chunk.size_bytes, chunk.offset)
    if len(data) != chunk.size_bytes:
        raise Corrupt(
            f"a column chunk of {chunk.size_bytes} bytes ends after {len(data)}", path=path, offset=chunk.offset
        )
    if crc32c(data) != chunk.crc:
        raise Corrupt("a column chunk fails its checksum", path=path, offset=chunk.offset)
    return data
