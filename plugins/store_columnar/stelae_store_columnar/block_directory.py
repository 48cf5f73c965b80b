"""The directory of one store: the names of block files, and their removal.

A number is never used twice while a store is open. When a store is opened, it removes the files that its manifest does
not name: they were written before a crash and never committed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from threading import Lock

from stelae.spi.services import Files

_NAME = re.compile(r"(\d{8,})\.(parquet|index)")


class BlockDirectory:
    """The files of one store. A file is removed when no snapshot holds it any more."""

    def __init__(self, files: Files, path: str, next_number: int) -> None:
        self._files = files
        self._path = path
        self._created = False
        self._held: Counter[str] = Counter()
        self._to_remove: set[str] = set()
        self._closed = False
        self._lock = Lock()
        self.next_number = next_number

    def path_of(self, number: int) -> str:
        """Return the path of a block, without suffix."""
        return f"{self._path}/{number:08d}"

    def names_of(self, number: int) -> tuple[str, str]:
        """Return the names of the two files of a block: the rows and their index."""
        return f"{number:08d}.parquet", f"{number:08d}.index"

    def number_of(self, path: str) -> int:
        """Return the number in the path of a block."""
        return int(path.rpartition("/")[2])

    def next_path(self) -> str:
        """Return the path of the next block, without suffix. Before the first one, creates the directory durably."""
        if not self._created:
            self._files.make_directory(self._path)
            self._files.sync_directory(self._path.rpartition("/")[0] or "/")
            self._created = True  # If one of them fails, the next flush does both again.
        number = self.next_number
        self.next_number += 1
        return self.path_of(number)

    def sync(self) -> None:
        """Make the names of new files durable."""
        if self._created:
            self._files.sync_directory(self._path)

    def remove_orphans(self, live: Collection[int]) -> None:
        """Remove the block files whose numbers are not in ``live``. Other files are left alone."""
        if not self._files.exists(self._path):
            return
        for name in self._files.listdir(self._path):
            found = _NAME.fullmatch(name)
            if found and int(found[1]) not in live:
                self._files.remove(f"{self._path}/{name}")

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, each as soon as no snapshot holds it. Files that do not exist are ignored."""
        with self._lock:
            self._remove(names)

    def hold(self, names: Iterable[str]) -> None:
        """Keep files until ``release`` was called for them as often as ``hold``."""
        with self._lock:
            self._held.update(names)

    def release(self, names: Collection[str]) -> None:
        """Undo one call of ``hold``."""
        with self._lock:
            self._held.subtract(names)
            self._remove([name for name in names if name in self._to_remove])

    def close(self) -> None:
        """Remove nothing from now on. Another store may have this directory, and files with the same names.

        That is so if the replica is set aside for a copy while a snapshot of it is still read. Files that are left
        here are orphans at the next start."""
        with self._lock:
            self._closed = True

    def _remove(self, names: Iterable[str]) -> None:
        if self._closed:
            return
        for name in names:
            if self._held[name] > 0:
                self._to_remove.add(name)
                continue
            self._to_remove.discard(name)
            path = f"{self._path}/{name}"
            if self._files.exists(path):
                self._files.remove(path)
