"""The file that says whose directory this is, how often it was opened, and the newest segment.

The count of openings makes nonces unique without a clock or a random source. The number of the
newest segment lets a start notice that just this segment is missing, which nothing else would tell; its
length, known once the engine was closed, that something was cut from it. They change in place, so that
a full disk keeps no node from starting; should the file be damaged, a hash of what it holds takes the
place of the count."""

from __future__ import annotations

import struct
from contextlib import closing
from hashlib import blake2b

from crc32c import crc32c

from stelae.spi.errors import Foreign, FutureVersion
from stelae.spi.services import Files

MARKER_NAME = "shared"
LOCK_NAME = "lock"
MARKER_MAGIC = b"stelwaln"
MARKER_VERSION = 1

_MARKER = struct.Struct("<8sHHIQQQ")
_CRC = struct.Struct("<I")


class Marker:
    """The marker of a directory that is ours. See the module.

    Attributes:
        newest: number of the newest segment there ever was, as far as the file knows; 0 for none.
        newest_end: everything of it before this offset is durable, for ever; 0: unknown.
    """

    def __init__(self, files: Files, path: str, opened: int, newest: int = 0, newest_end: int = 0) -> None:
        self._files = files
        self._path = path
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
        with closing(self._files.open(self._path, writable=True)) as file:
            file.pwritev([_encode(self._opened, self.newest, self.newest_end)], 0, dsync=True)


def claim(files: Files, directory: str, *, beside_others: bool = False) -> Marker:
    """Check that the directory is ours or empty and count this opening, durably.

    Args:
        beside_others: a new directory may hold files of somebody else.

    Raises:
        Foreign: something else wrote this directory.
        FutureVersion: a newer release did.
        Full: it is new and there is no space for the marker.
    """
    path = f"{directory}/{MARKER_NAME}"
    if files.exists(path):
        opened, newest, newest_end = _decode(files.read_bytes(path), path)
        marker = Marker(files, path, opened + 1, newest, newest_end)
        marker.write()
        return marker
    strangers = [name for name in files.listdir(directory) if name not in (LOCK_NAME, f".{MARKER_NAME}.tmp")]
    if strangers and not beside_others:
        fact = f"the directory holds {strangers[0]!r} but no {MARKER_NAME!r}: not a log of ours"
        raise Foreign(fact, path=directory)
    files.replace(path, _encode(1, 0, 0))
    return Marker(files, path, 1)


def _encode(opened: int, newest: int, newest_end: int) -> bytes:
    raw = _MARKER.pack(MARKER_MAGIC, MARKER_VERSION, 0, 0, opened, newest, newest_end)
    return raw + _CRC.pack(crc32c(raw))


def _decode(data: bytes, path: str) -> tuple[int, int, int]:
    if data[: len(MARKER_MAGIC)] != MARKER_MAGIC:
        raise Foreign(f"the file begins with {data[:8]!r}: not a log of ours", path=path)
    whole = len(data) == _MARKER.size + _CRC.size
    if not whole or _CRC.unpack_from(data, _MARKER.size)[0] != crc32c(data[: _MARKER.size]):
        return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") >> 1, 0, 0
    _, version, _, _, opened, newest, newest_end = _MARKER.unpack_from(data)
    if version > MARKER_VERSION:
        fact = f"format {version} is newer than {MARKER_VERSION}, the newest known here"
        raise FutureVersion(fact, path=path, offset=8)
    return int(opened), int(newest), int(newest_end)
