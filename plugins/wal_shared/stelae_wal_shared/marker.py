"""The file that says whose directory this is, how often it was opened, and the newest segment.

The count of openings makes nonces unique without a clock or a random source. The number of the
newest segment lets a start notice that just this segment is missing, which nothing else would tell; its
length, known once the engine was closed, that something was cut from it. The file is a
``stelae_shared.log_files.marker_file``; its payload is these three numbers."""

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
    """The marker of a directory that is ours. See the module.

    Attributes:
        newest: number of the newest segment there ever was, as far as the file knows; 0 for none.
        newest_end: everything of it before this offset is durable, for ever; 0: unknown.
    """

    def __init__(self, file: MarkerFile, opened: int, newest: int = 0, newest_end: int = 0) -> None:
        self._file = file
        self._opened = opened
        self._drawn = 0
        self.newest = newest
        self.newest_end = newest_end

    def draw_nonce(self) -> int:
        """Return 64 bits that were never drawn in this directory."""
        self._drawn += 1
        text = f"{self._opened}/{self._drawn}"
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")

    def note_newest(self, number: int, end: int = 0) -> None:
        """Remember the newest segment, and its length if it takes no more, durably.

        Raises:
            StorageError: it could not be written; only the notice of what is missing suffers.
        """
        self.newest, self.newest_end = number, end
        self.write()

    def write(self) -> None:
        """Write the marker in place, durably."""
        self._file.write(_MARKER.pack(self._opened, self.newest, self.newest_end))


def claim(files: Files, directory: str, *, beside_others: bool = False) -> SharedMarker:
    """Check that the directory is ours or empty and count this opening, durably.

    Args:
        beside_others: a new directory may hold files of somebody else.

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
