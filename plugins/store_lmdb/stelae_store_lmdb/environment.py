"""The environment of a tablet: how much space a flush needs.

1. The map never grows while the environment is open; a file above half of it gets twice its size at the next start.
2. ``reserve_bytes`` of the file are kept from flushes: a removal copies pages before it frees any.

The rest is what all environments have in common: ``stelae_shared.lmdb_files.environment``."""

from __future__ import annotations

from contextlib import closing
from typing import Self

from stelae.spi.errors import Full
from stelae.spi.services import Files
from stelae_shared.lmdb_files.environment import DATA_NAME, MAP_BYTES_MIN, BaseEnvironment
from stelae_store_lmdb.config import LmdbStoreConfig

WANTED_BY = "store engine 'lmdb'"
_SLACK_PAGES = 64
"""For what every transaction copies: paths of the tree, splits, and the list of free pages."""


class Environment(BaseEnvironment[LmdbStoreConfig]):
    """One open LMDB environment. Created by ``open`` only."""

    @classmethod
    def open(cls, files: Files, directory: str, config: LmdbStoreConfig) -> Self:
        """Open or create the environment in a directory that exists, with a map that holds it; raises as ``opened``."""
        size_bytes = _size(files, f"{directory}/{DATA_NAME}")
        map_bytes = max(config.map_bytes, 2 * size_bytes)
        return cls.opened(files, directory, config, WANTED_BY, map_bytes, max(MAP_BYTES_MIN, size_bytes))

    def make_room(self, size_bytes: int, spread: int, *, removing: bool = False) -> None:
        """Extend the file for a transaction that puts so many bytes, keys included, in up to ``spread`` places.

        If the disk is full, LMDB may use the free pages of the file and nothing else, the reserve only to remove: then
        a transaction that does not fit fails with ``Full`` before it has written a byte."""
        stat = self._env.stat()
        live = stat["leaf_pages"] + stat["branch_pages"] + stat["overflow_pages"]
        # Each place may cost a page that is copied, and one more if it splits.
        copied = (1 if removing else 2) * min(spread, stat["leaf_pages"]) + stat["branch_pages"]
        pages = 2 * size_bytes // self.page_bytes + copied + _SLACK_PAGES
        # What the last two transactions freed cannot be used yet: half of what is free is a careful guess.
        used = self._pages_used()
        pages = max(_SLACK_PAGES, pages - (used - live) // 2)
        reserve = 0 if removing else self._settings.reserve_bytes
        self._reserve((used + pages) * self.page_bytes + reserve, reserve)

    def _why_full(self, found: Full) -> str:
        used = self._pages_used() * self.page_bytes
        return f"the map of {self.map_bytes} bytes is full: {used} are in use; raise map_bytes and restart"


def _size(files: Files, path: str) -> int:
    if not files.exists(path):
        return 0
    with closing(files.open(path)) as file:
        return file.size()
