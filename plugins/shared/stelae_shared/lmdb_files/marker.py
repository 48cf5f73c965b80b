"""The marker file of an LMDB directory: it identifies the owner, and records how the environment was left.

With ``CLEAN`` it has a stamp of the environment's file. By the stamp a start notices that the file was truncated,
exchanged or rolled back after it was closed. The format of the file is that of
``stelae_shared.log_files.marker_file``. Its payload is how the environment was left, and the stamp: the length of the
environment's file, and the CRC32C of its meta pages."""

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
"""Covers both meta pages, which are the first pages of the file, for any page size up to 16 KiB."""


class ShutdownState(IntEnum):
    """How the environment was left. The numbers are stored and never reused."""

    OPEN = 0
    """The environment is open, or its process died."""
    CLEAN = 1
    """The environment was closed, and the stamp describes its file."""
    DISTRUSTED = 2
    """A sync of the environment failed. Nothing is written to it any more."""


@dataclass(frozen=True, slots=True)
class MarkerOwner:
    """The engine that owns a marker.

    Attributes:
        magic: the first eight bytes of the file.
        thing: what the directory contains, for messages, such as "log".
        beside: names of files that may exist before the marker does.
    """

    magic: bytes
    thing: str
    beside: tuple[str, ...] = ()


class EnvironmentMarker:
    """The marker of one directory.

    Args:
        files: the disk.
        directory: the engine's directory.
        data_path: the environment's file, for the stamp.
        owner: the engine that owns the directory.
    """

    def __init__(self, files: Files, directory: str, data_path: str, owner: MarkerOwner) -> None:
        form = RecordFormat(owner.magic, MARKER_VERSION, _MARKER.size)
        self._files = files
        self._file = MarkerFile(files, directory, MARKER_NAME, form, thing=owner.thing, beside=owner.beside)
        self._data_path = data_path

    def claim(self) -> ShutdownState:
        """Check that the owner has this directory, or claim an empty one; return how the environment was left.

        A stamp that does not match the file counts as ``OPEN``.

        Raises:
            Foreign, FutureVersion, Full: as ``MarkerFile.claim``.
        """
        found = self._file.claim(_encoded(ShutdownState.OPEN, 0, 0))
        if found is None:
            return ShutdownState.OPEN
        left, crc, size = _MARKER.unpack(found)
        if left == ShutdownState.CLEAN and (size, crc) != self._stamp():
            return ShutdownState.OPEN
        return ShutdownState(left)

    def write(self, left: ShutdownState) -> None:
        """Record durably how the environment is left."""
        size, crc = self._stamp() if left is ShutdownState.CLEAN else (0, 0)
        self._file.write(_encoded(left, size, crc))

    def _stamp(self) -> tuple[int, int]:
        """Return the length of the environment's file and the checksum of its first pages; zeros without a file."""
        if not self._files.exists(self._data_path):
            return 0, 0
        with closing(self._files.open(self._data_path)) as file:
            return file.size(), crc32c(file.pread(_META_BYTES, 0))


def _encoded(left: ShutdownState, size: int, crc: int) -> bytes:
    return _MARKER.pack(left, crc, size)
