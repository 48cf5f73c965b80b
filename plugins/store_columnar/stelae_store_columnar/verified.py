"""A Parquet file as pyarrow reads it: every column chunk is checked before a byte of it is handed on."""

from __future__ import annotations

from crc32c import crc32c

from stelae.spi.errors import Corrupt
from stelae.spi.services import File
from stelae_store_columnar.block_index import BlockIndex, Chunk


class VerifiedFile:
    """The part of Python's file protocol that ``pyarrow.PythonFile`` calls. One reader owns it.

    ``file`` is open only while the reader reads: a block that nobody reads holds no handle."""

    closed = False

    def __init__(self, index: BlockIndex, path: str) -> None:
        self.file: File | None = None
        self._index = index
        self._path = path
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        """Return bytes of the chunk that begins here; pyarrow asks for whole ones."""
        chunk = self._index.by_offset.get(self._at)
        if chunk is None or size > chunk.size_bytes:
            raise Corrupt(f"{size} bytes are asked for that are no column chunk", path=self._path, offset=self._at)
        self._at += size
        assert self.file is not None
        return read_chunk(self.file, chunk, self._path)[:size]

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place from the start (0), from here (1) or from the end (2)."""
        self._at = offset + (0, self._at, self._index.file_bytes)[whence]
        return self._at

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def close(self) -> None:
        """The file is its owner's."""


def read_chunk(file: File, chunk: Chunk, path: str) -> bytes:
    """Read a stretch of a file; ``Corrupt``: not the bytes that were written."""
    data = file.pread(chunk.size_bytes, chunk.offset)
    if len(data) != chunk.size_bytes:
        raise Corrupt(
            f"a column chunk of {chunk.size_bytes} bytes ends after {len(data)}", path=path, offset=chunk.offset
        )
    if crc32c(data) != chunk.crc:
        raise Corrupt("a column chunk fails its checksum", path=path, offset=chunk.offset)
    return data
