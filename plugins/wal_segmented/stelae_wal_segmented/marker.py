"""The marker file: it identifies the engine's directory and counts how often it was opened.

The count makes segment nonces unique without a clock or a random source. A nonce is a hash of the count, of a counter
within the run, and of its purpose. The format of the file is that of ``stelae_shared.log_files.marker_file``. Its
payload is the count."""

from __future__ import annotations

import struct
import threading
from hashlib import blake2b

from stelae.spi.services import Files
from stelae_shared.log_files.marker_file import MarkerFile
from stelae_shared.log_files.page_slots import RecordFormat

MARKER_NAME = "segmented"
LOCK_NAME = "lock"
MARKER_MAGIC = b"stelwalm"
MARKER_VERSION = 2

_MARKER = struct.Struct("<Q")
_FORMAT = RecordFormat(MARKER_MAGIC, MARKER_VERSION, _MARKER.size)


class NonceSource:
    """Draws numbers that no other segment of this node ever had. Any thread."""

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
    """Check that the directory is this engine's or empty, raise its count durably, and return the source of nonces.

    Raises:
        Foreign, FutureVersion, Full: as ``MarkerFile.claim``.
    """
    file = MarkerFile(files, directory, MARKER_NAME, _FORMAT, thing="log", beside=(LOCK_NAME,))
    found = file.claim(_MARKER.pack(1))
    if found is None:
        return NonceSource(1)
    opened = _MARKER.unpack(found)[0] + 1
    file.write(_MARKER.pack(opened))
    return NonceSource(opened)
