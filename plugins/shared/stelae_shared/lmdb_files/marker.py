"""The file that says whose directory this is, and how the environment was left.

``CLEAN`` comes with a stamp of the environment's file, so that a file that was cut, exchanged or
rolled back while nobody had it open is not taken for the one that was closed. The marker is a
``stelae_shared.log_files.marker_file``. Its payload is how the environment was left, and the stamp: length of the
environment's file, and CRC32C of its meta pages."""

from __future__ import annotations

import struct
from contextlib import closing
from dataclasses import dataclass
from enum import IntEnum

from crc32c import crc32c

from stelae.spi.services import Files
from stelae_shared.log_files.marker_file import MarkerFile
from stelae_shared.log_files.page_slots import RecordFormat

MARKER_NAME = "lmdb"
MARKER_VERSION = 2

_MARKER = struct.Struct("<HxxIQ")
_META_BYTES = 2 << 14
"""Covers both meta pages, which begin the file, at any page size up to 16 KiB."""


class Left(IntEnum):
    """How the environment was left. Stored; numbers are never reused."""

    OPEN = 0
    """It is open, or its process died."""
    CLEAN = 1
    """It was closed, and the stamp says what it was then."""
    DISTRUSTED = 2
    """A sync of it failed once: nothing is written to it any more."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Which engine's marker it is.

    Attributes:
        magic: eight bytes that the file begins with.
        thing: what the directory holds, for people: "log".
        beside: names of files that may be there before the marker is.
    """

    magic: bytes
    thing: str
    beside: tuple[str, ...] = ()


class EnvironmentMarker:
    """The marker of one directory.

    Args:
        files: the disk.
        directory: the engine's own.
        data_path: the environment's file, for the stamp.
        owner: whose it is to be.
    """

    def __init__(self, files: Files, directory: str, data_path: str, owner: Owner) -> None:
        form = RecordFormat(owner.magic, MARKER_VERSION, _MARKER.size)
        self._files = files
        self._file = MarkerFile(files, directory, MARKER_NAME, form, thing=owner.thing, beside=owner.beside)
        self._data_path = data_path

    def claim(self) -> Left:
        """Check that the directory is ours, or empty and then make it ours; say how it was left.

        A stamp that does not fit counts as ``OPEN``.

        Raises:
            Foreign, FutureVersion, Full: as ``MarkerFile.claim``.
        """
        found = self._file.claim(_encoded(Left.OPEN, 0, 0))
        if found is None:
            return Left.OPEN
        left, crc, size = _MARKER.unpack(found)
        if left == Left.CLEAN and (size, crc) != self._stamp():
            return Left.OPEN
        return Left(left)

    def write(self, left: Left) -> None:
        """Record durably how the environment is left."""
        size, crc = self._stamp() if left is Left.CLEAN else (0, 0)
        self._file.write(_encoded(left, size, crc))

    def _stamp(self) -> tuple[int, int]:
        """Length of the environment's file and checksum of its first pages; zeros if there is none."""
        if not self._files.exists(self._data_path):
            return 0, 0
        with closing(self._files.open(self._data_path)) as file:
            return file.size(), crc32c(file.pread(_META_BYTES, 0))


def _encoded(left: Left, size: int, crc: int) -> bytes:
    return _MARKER.pack(left, crc, size)
