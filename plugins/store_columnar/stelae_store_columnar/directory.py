"""The directory of one store: names of block files, what of them is removed, and when.

Numbers are never used twice while a store is open, and what no manifest names is removed when it is opened: it was
written in vain before a crash."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from threading import Lock

from stelae.spi.services import Files

SUFFIXES = (".parquet", ".index")
_NAME = re.compile(r"(\d{8,})\.(parquet|index)")


class BlockDirectory:
    """Files of one store. Removal waits for snapshots that hold a file."""

    def __init__(self, files: Files, path: str, next_number: int) -> None:
        self._files = files
        self._path = path
        self._made = False
        self._held: Counter[str] = Counter()
        self._waiting: set[str] = set()
        self._lock = Lock()
        self.next_number = next_number

    def path_of(self, number: int) -> str:
        """Return where a block is, without suffix."""
        return f"{self._path}/{number:08d}"

    def number_of(self, path: str) -> int:
        """Return the number of a block by its path."""
        return int(path.rpartition("/")[2])

    def next_path(self) -> str:
        """Return where the next block goes; makes the directory when it is the first."""
        if not self._made:
            self._made = True
            self._files.make_directory(self._path)
            self._files.sync_directory(self._path.rpartition("/")[0] or "/")
        number = self.next_number
        self.next_number += 1
        return self.path_of(number)

    def sync(self) -> None:
        """Make the names of new files durable."""
        if self._made:
            self._files.sync_directory(self._path)

    def remove_orphans(self, live: Collection[int]) -> None:
        """Remove block files that nobody names; other files are nobody's of ours."""
        if not self._files.exists(self._path):
            return
        for name in self._files.listdir(self._path):
            found = _NAME.fullmatch(name)
            if found and int(found[1]) not in live:
                self._files.remove(f"{self._path}/{name}")

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, as soon as no snapshot holds them; what is gone already is passed over."""
        with self._lock:
            self._remove(names)

    def hold(self, names: Iterable[str]) -> None:
        """Keep files until they are let go as often as they were held."""
        with self._lock:
            self._held.update(names)

    def let_go(self, names: Collection[str]) -> None:
        """Undo one ``hold``."""
        with self._lock:
            self._held.subtract(names)
            self._remove([name for name in names if name in self._waiting])

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            if self._held[name] > 0:
                self._waiting.add(name)
                continue
            self._waiting.discard(name)
            path = f"{self._path}/{name}"
            if self._files.exists(path):
                self._files.remove(path)
