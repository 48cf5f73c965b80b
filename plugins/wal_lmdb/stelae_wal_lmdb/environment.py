"""The log environment of a node: it decides when its space and its map change.

1. The map grows when it is full (``grow``), and gets a reserve for removals (``lend_reserve``).
2. Appends may not use ``reserve_bytes`` of the file, because a removal copies pages before it frees any.

Everything else is in ``stelae_shared.lmdb_files.environment``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from stelae.spi.errors import Full
from stelae.spi.services import Files
from stelae_shared.lmdb_files.buffer_address import address_of
from stelae_shared.lmdb_files.environment import DATA_NAME, MAP_BYTES_MIN, BaseEnvironment
from stelae_wal_lmdb.config import LmdbConfig
from stelae_wal_lmdb.format import HEADER_KEY, NAMESPACE, key

WANTED_BY = "wal engine 'lmdb'"
_PROBE_KEY = key(NAMESPACE, (1 << 64) - 1)
_SLACK_PAGES = 64
"""Pages for the tree itself: a path of a few pages for each log, splits, and the list of free pages."""


class LogEnvironment(BaseEnvironment[LmdbConfig]):
    """One open LMDB environment. Created by ``open`` only."""

    @classmethod
    def open(cls, files: Files, directory: str, config: LmdbConfig) -> Self:
        """Open or create the environment in an existing directory. Raises as ``opened``."""
        return cls.opened(files, directory, config, WANTED_BY, config.map_bytes, MAP_BYTES_MIN)

    def make_room(self, size_bytes: int, puts: int) -> None:
        """Extend the file for a transaction that puts ``puts`` values with ``size_bytes`` bytes together.

        If the disk is full, LMDB may use only the free pages of the file. Then a transaction that does not fit fails
        with ``Full`` before it has written a byte."""
        pages = self._pages_used() + size_bytes // self.page_bytes + 3 * puts + _SLACK_PAGES
        kept_bytes = self._settings.reserve_bytes
        self._reserve(pages * self.page_bytes + kept_bytes, kept_bytes)

    def probe(self, size_bytes: int) -> None:
        """Raise ``Full`` unless a value of this size would fit now."""
        self._check_process()
        with self._errors():
            txn = self._env.begin(write=True)
            try:
                txn.put(_PROBE_KEY, bytes(size_bytes))
            finally:
                self._abort(txn)

    def grow(self) -> bool:
        """Double the map while no read is under way; return whether the setting and the system allowed it."""
        wanted = min(self.map_bytes * 2, self._settings.map_bytes_max)
        if self._cramped or wanted <= self.map_bytes:
            return False
        try:
            self._set_map(wanted)
        except Full:
            return False
        self.map_bytes = wanted
        return True

    @contextmanager
    def lend_reserve(self) -> Iterator[None]:
        """Let the transactions of this block use the reserve of map and file.

        The pages that they free are available when the block is left. LMDB re-uses pages from the second transaction
        on after the one that freed them, so two transactions are made here."""
        before = int(self._env.info()["map_size"])
        with suppress(Full):
            self._extend(self._pages_used() * self.page_bytes + self._settings.reserve_bytes)
        self._set_map(before + self._settings.reserve_bytes)
        try:
            yield
            for _ in range(2):
                with self.write() as txn:
                    txn.put(HEADER_KEY, bytes(txn.get(HEADER_KEY)))
        finally:
            self._set_map(before)


def offset_in_map(view: memoryview) -> int:
    """Return the file offset of a transaction's value; 0 where the system does not report its maps."""
    address = address_of(view)
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            regions = [line.split(maxsplit=3) for line in maps if line.rstrip().endswith(f"/{DATA_NAME}")]
    except OSError:
        return 0
    for where, _, offset, _ in regions:
        low, high = (int(text, 16) for text in where.split("-"))
        if low <= address < high:
            return address - low + int(offset, 16)
    return 0
