"""A file of which only whole column chunks are read, as Parquet readers do that know the footer already."""

from __future__ import annotations

from abc import ABC, abstractmethod


class ChunkFile(ABC):
    """What pyarrow asks of a file, but for the bytes.

    Args:
        size_bytes: of the whole file: where its end is.
    """

    closed = False

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._at = 0

    @abstractmethod
    def read(self, size: int = -1) -> bytes | memoryview:
        """Return bytes of the chunk that begins here, and go behind them; pyarrow asks for whole ones."""

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place from the start (0), from here (1) or from the end (2)."""
        self._at = offset + (0, self._at, self._size_bytes)[whence]
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
        """Begin anew: what is read belongs to somebody else."""
        self._at = 0
