"""The file that says whose directory this is, and how the environment was left.

``CLEAN`` comes with a stamp of the environment's file, so that a file that was cut, exchanged or
rolled back while nobody had it open is not taken for the one that was closed. The file is rewritten in
place, within one sector: a full disk does not keep a node from starting."""

from __future__ import annotations

import struct
from contextlib import closing
from dataclasses import dataclass
from enum import IntEnum

from crc32c import crc32c

from stelae.spi.errors import Foreign, FutureVersion
from stelae.spi.services import Files

MARKER_NAME = "lmdb"
MARKER_VERSION = 1

_MARKER = struct.Struct("<8sHHIQI")
_CRC = struct.Struct("<I")
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


class Marker:
    """The marker of one directory.

    Args:
        files: the disk.
        directory: the engine's own.
        data_path: the environment's file, for the stamp.
        owner: whose it is to be.
    """

    def __init__(self, files: Files, directory: str, data_path: str, owner: Owner) -> None:
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{MARKER_NAME}"
        self._data_path = data_path
        self._owner = owner

    def claim(self) -> Left:
        """Check that the directory is ours, or empty and then make it ours; say how it was left.

        A stamp that does not fit, or a marker that fails its checksum, counts as ``OPEN``.

        Raises:
            Foreign: something else wrote this directory.
            FutureVersion: a newer release did.
            Full: it is new and there is no space for the marker.
        """
        owner = self._owner
        if not self._files.exists(self._path):
            known = (*owner.beside, f".{MARKER_NAME}.tmp")
            strangers = [name for name in self._files.listdir(self._directory) if name not in known]
            if strangers:
                fact = f"the directory holds {strangers[0]!r} but no {MARKER_NAME!r}: not a {owner.thing} of ours"
                raise Foreign(fact, path=self._directory)
            self._files.replace(self._path, self._encoded(Left.OPEN, 0, 0))
            return Left.OPEN
        data = self._files.read_bytes(self._path)
        if data[: len(owner.magic)] != owner.magic:
            raise Foreign(f"the file begins with {data[:8]!r}: not a {owner.thing} of ours", path=self._path)
        if len(data) != _MARKER.size + _CRC.size or _CRC.unpack_from(data, _MARKER.size)[0] != crc32c(data[:-4]):
            return Left.OPEN
        _, version, left, _, size, crc = _MARKER.unpack_from(data)
        if version > MARKER_VERSION:
            fact = f"format {version} is newer than {MARKER_VERSION}, the newest known here"
            raise FutureVersion(fact, path=self._path, offset=8)
        if left == Left.CLEAN and (size, crc) != self._stamp():
            return Left.OPEN
        return Left(left)

    def write(self, left: Left) -> None:
        """Record durably how the environment is left."""
        size, crc = self._stamp() if left is Left.CLEAN else (0, 0)
        with closing(self._files.open(self._path, writable=True)) as file:
            file.pwritev([self._encoded(left, size, crc)], 0, dsync=True)

    def _stamp(self) -> tuple[int, int]:
        """Length of the environment's file and checksum of its first pages; zeros if there is none."""
        if not self._files.exists(self._data_path):
            return 0, 0
        with closing(self._files.open(self._data_path)) as file:
            return file.size(), crc32c(file.pread(_META_BYTES, 0))

    def _encoded(self, left: Left, size: int, crc: int) -> bytes:
        raw = _MARKER.pack(self._owner.magic, MARKER_VERSION, left, 0, size, crc)
        return raw + _CRC.pack(crc32c(raw))
