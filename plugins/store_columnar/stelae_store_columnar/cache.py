"""Decoded columns of blocks, kept for whoever reads single rows; bounded in bytes, the least recently used go first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any


class DecodedCache:
    """Values by key, with a bound on what they hold together. Safe from any thread."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._found: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    @property
    def size_bytes(self) -> int:
        """What is held now."""
        return self._bytes

    def get(self, key: Hashable) -> Any:
        """Return a value and keep it longer; ``None`` if it is not here."""
        with self._lock:
            found = self._found.get(key)
            if found is None:
                return None
            self._found.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: Any, size_bytes: int) -> None:
        """Keep a value, unless it alone is too large."""
        if size_bytes > self._bytes_max:
            return
        with self._lock:
            old = self._found.pop(key, None)
            self._bytes += size_bytes - (old[1] if old else 0)
            self._found[key] = (value, size_bytes)
            while self._bytes > self._bytes_max:
                _, (_, freed) = self._found.popitem(last=False)
                self._bytes -= freed
