"""A file object of which pyarrow reads only complete column chunks, because it knows the Parquet footer already."""

from __future__ import annotations

from abc import ABC, abstractmethod


class ChunkFile(ABC):
    """The file interface that pyarrow needs. A subclass supplies the bytes.

    Args:
        size_bytes: of the file.
    """

    closed = False

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._position = 0

    @abstractmethod
    def read(self, size: int = -1) -> bytes | memoryview:
        """Return ``size`` bytes of the chunk at the current position, and move behind them.

        pyarrow asks for complete chunks."""

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to an offset from the start (0), the current position (1) or the end (2). Returns the new position."""
        self._position = offset + (0, self._position, self._size_bytes)[whence]
        return self._position

    def tell(self) -> int:
        """Return the current position."""
        return self._position

    def readable(self) -> bool:
        """Return true."""
        return True

    def seekable(self) -> bool:
        """Return true."""
        return True

    def close(self) -> None:
        """Move back to the start. The file itself belongs to the caller and stays open."""
        self._position = 0
