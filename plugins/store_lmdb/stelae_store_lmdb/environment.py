"""The environment of a tablet: the space that a flush needs.

1. The map never grows while the environment is open. If the file is larger than half of it, the next start opens a map
   of twice the size of the file.
2. Flushes leave ``reserve_bytes`` of the file free, because a removal copies pages before it frees any.

What all environments have in common is in ``stelae_shared.lmdb_files.environment``."""

from __future__ import annotations

from contextlib import closing
from typing import Self

from stelae.spi.errors import Full
from stelae.spi.services import Files
from stelae_shared.lmdb_files.environment import DATA_NAME, MAP_BYTES_MIN, BaseEnvironment
from stelae_store_lmdb.config import LmdbStoreConfig

WANTED_BY = "store engine 'lmdb'"
_SLACK_PAGES = 64
"""Pages that every transaction may copy: paths of the tree, splits, and the list of free pages."""


class Environment(BaseEnvironment[LmdbStoreConfig]):
    """One open LMDB environment. Created by ``open`` only."""

    @classmethod
    def open(cls, files: Files, directory: str, config: LmdbStoreConfig) -> Self:
        """Open or create the environment in an existing directory, with a large enough map. Raises like ``opened``."""
        size_bytes = _size(files, f"{directory}/{DATA_NAME}")
        map_bytes = max(config.map_bytes, 2 * size_bytes)
        return cls.opened(files, directory, config, WANTED_BY, map_bytes, max(MAP_BYTES_MIN, size_bytes))

    def make_room(self, size_bytes: int, spread: int, *, removing: bool = False) -> None:
        """Extend the file for a transaction that puts ``size_bytes``, keys included, at up to ``spread`` positions.

        If the disk is full, LMDB may only use the free pages of the file, and the reserve only for removals. Then a
        transaction that does not fit fails with ``Full`` before it writes a byte."""
        stat = self._env.stat()
        live = stat["leaf_pages"] + stat["branch_pages"] + stat["overflow_pages"]
        # Each position may copy a page, and one more if the page splits.
        copied = (1 if removing else 2) * min(spread, stat["leaf_pages"]) + stat["branch_pages"]
        pages = 2 * size_bytes // self.page_bytes + copied + _SLACK_PAGES
        # The pages that the last two transactions freed cannot be used yet. Half of the free pages is a safe guess.
        used = self._pages_used()
        pages = max(_SLACK_PAGES, pages - (used - live) // 2)
        reserve = 0 if removing else self._settings.reserve_bytes
        self._reserve((used + pages) * self.page_bytes + reserve, reserve)

    def _why_full(self, found: Full) -> str:
        used = self._pages_used() * self.page_bytes
        return f"the map of {self.map_bytes} bytes is full ({used} are in use); raise map_bytes and restart the node"


def _size(files: Files, path: str) -> int:
    if not files.exists(path):
        return 0
    with closing(files.open(path)) as file:
        return file.size()
