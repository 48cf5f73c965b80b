"""The file that says whose directory this is, and counts how often it was opened.

The count makes segment nonces unique without a clock or a random source: a nonce is a hash of
the count, of a counter within the run, and of what it is for. The count is raised in place, so that
a full disk does not keep a node from starting; should the file be damaged, the hash of what it
holds takes the place of the count."""

from __future__ import annotations

import struct
import threading
from contextlib import closing
from hashlib import blake2b

from crc32c import crc32c

from stelae.spi.errors import Foreign, FutureVersion
from stelae.spi.services import Files

MARKER_NAME = "segmented"
LOCK_NAME = "lock"
MARKER_MAGIC = b"stelwalm"
MARKER_VERSION = 1

_MARKER = struct.Struct("<8sHHIQ")
_CRC = struct.Struct("<I")


class NonceSource:
    """Numbers that no other segment of this node ever had. For any number of threads."""

    __slots__ = ("_count", "_lock", "_opened")

    def __init__(self, opened: int) -> None:
        self._opened = opened
        self._count = 0
        self._lock = threading.Lock()

    def draw(self, purpose: str) -> int:
        """Return a new 64-bit number."""
        with self._lock:
            self._count += 1
            text = f"{self._opened}/{self._count}/{purpose}"
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def claim(files: Files, directory: str) -> NonceSource:
    """Check that the directory is ours or empty, raise its count durably, and return the nonces.

    Raises:
        Foreign: something else wrote this directory.
        FutureVersion: a newer release did.
        Full: it is new and there is no space for the marker.
    """
    path = f"{directory}/{MARKER_NAME}"
    if not files.exists(path):
        strangers = [name for name in files.listdir(directory) if name != LOCK_NAME]
        strangers = [name for name in strangers if name != f".{MARKER_NAME}.tmp"]
        if strangers:
            fact = f"the directory holds {strangers[0]!r} but no {MARKER_NAME!r}: not a log of ours"
            raise Foreign(fact, path=directory)
        files.replace(path, _encode(1))
        return NonceSource(1)
    opened = _decode(files.read_bytes(path), path) + 1
    with closing(files.open(path, writable=True)) as file:
        file.pwritev([_encode(opened)], 0, dsync=True)
    return NonceSource(opened)


def _encode(opened: int) -> bytes:
    raw = _MARKER.pack(MARKER_MAGIC, MARKER_VERSION, 0, 0, opened)
    return raw + _CRC.pack(crc32c(raw))


def _decode(data: bytes, path: str) -> int:
    if data[: len(MARKER_MAGIC)] != MARKER_MAGIC:
        raise Foreign(f"the file begins with {data[:8]!r}: not a log of ours", path=path)
    whole = len(data) == _MARKER.size + _CRC.size
    if not whole or _CRC.unpack_from(data, _MARKER.size)[0] != crc32c(data[: _MARKER.size]):
        digest = blake2b(data, digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1
    _, version, _, _, opened = _MARKER.unpack_from(data)
    if version > MARKER_VERSION:
        fact = f"format {version} is newer than {MARKER_VERSION}, the newest known here"
        raise FutureVersion(fact, path=path, offset=8)
    return int(opened)
