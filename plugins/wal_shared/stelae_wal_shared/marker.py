"""The marker file: it identifies the engine's directory, and records the number of openings and the newest segment.

The count of openings makes nonces unique without a clock or a random source. By the number of the newest segment a
start notices that this segment is missing, which nothing else would show. By its length, recorded when the engine is
closed, a start notices that the segment was truncated. The format of the file is that of
``stelae_shared.log_files.marker_file``. Its payload is these three numbers."""

from __future__ import annotations

import struct
from hashlib import blake2b

from stelae.spi.services import Files
from stelae_shared.log_files.marker_file import MarkerFile
from stelae_shared.log_files.page_slots import RecordFormat

MARKER_NAME = "shared"
LOCK_NAME = "lock"
MARKER_MAGIC = b"stelwaln"
MARKER_VERSION = 2

_MARKER = struct.Struct("<QQQ")
_FORMAT = RecordFormat(MARKER_MAGIC, MARKER_VERSION, _MARKER.size)


class SharedMarker:
    """The marker of this engine's directory: see the module.

    Attributes:
        newest: number of the newest segment that the file records; 0: none.
        newest_end: everything before this offset of that segment is durable and stays so; 0: unknown.
    """

    def __init__(self, file: MarkerFile, opened: int, newest: int = 0, newest_end: int = 0) -> None:
        self._file = file
        self._opened = opened
        self._drawn = 0
        self.newest = newest
        self.newest_end = newest_end

    def draw_nonce(self) -> int:
        """Return a 64-bit number that was never drawn in this directory."""
        self._drawn += 1
        text = f"{self._opened}/{self._drawn}"
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")

    def note_newest(self, number: int, end: int = 0) -> None:
        """Record the newest segment durably, and its length once it takes no more records.

        Raises:
            StorageError: the marker could not be written. A missing segment may go unnoticed then.
        """
        self.newest, self.newest_end = number, end
        self.write()

    def write(self) -> None:
        """Write the marker in place, durably."""
        self._file.write(_MARKER.pack(self._opened, self.newest, self.newest_end))


def claim(files: Files, directory: str, *, beside_others: bool = False) -> SharedMarker:
    """Check that the directory is this engine's or empty, and count this opening durably.

    Args:
        files: the disk.
        directory: of the engine.
        beside_others: a new directory may have other files.

    Raises:
        Foreign, FutureVersion, Full: as ``MarkerFile.claim``.
    """
    file = MarkerFile(files, directory, MARKER_NAME, _FORMAT, thing="log", beside=(LOCK_NAME,))
    found = file.claim(_MARKER.pack(1, 0, 0), beside_others=beside_others)
    if found is None:
        return SharedMarker(file, 1)
    opened, newest, newest_end = _MARKER.unpack(found)
    marker = SharedMarker(file, opened + 1, newest, newest_end)
    marker.write()
    return marker
