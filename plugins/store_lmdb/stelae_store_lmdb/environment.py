"""The environment of a tablet: transactions, and the space for them.

Space
    1. The map is large from the start and never grows while the environment is open. It changes only while the disk is
       full, when it is cut to what the file has (``make_room``), and back; no read is under way then (``Gate``).
    2. The file is extended here, ahead of a transaction, and not by LMDB inside one: LMDB reports a
       short write as ``EIO``, which could not be told from a failing disk.
    3. ``reserve_bytes`` of the file are kept from flushes: a removal copies pages before it frees any.

Threads: ``read`` from any thread, everything else from the applying one. Values are views into the map
and die with their transaction; whoever wants to keep something copies it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from stelae.spi.errors import Full, StorageError
from stelae.spi.services import File, Files
from stelae_store_lmdb.config import LmdbStoreConfig
from stelae_store_lmdb.gate import Gate
from stelae_store_lmdb.library import library, map_refused, typed

DATA_NAME = "data.mdb"
MAP_BYTES_MIN = 1 << 16
_SLACK_PAGES = 64
"""For what every transaction copies: paths of the tree, splits, and the list of free pages."""


class Environment:
    """One open LMDB environment. Created by ``open`` only."""

    def __init__(self, lmdb: Any, env: Any, files: Files, path: str, config: LmdbStoreConfig, map_bytes: int) -> None:
        self._lmdb = lmdb
        self._env = env
        self._config = config
        self._gate = Gate(config.readers_max)
        self._process = os.getpid()
        self._file: File = files.open(path, writable=True)
        self._file_bytes = self._file.size()
        self.page_bytes: int = env.stat()["psize"]
        self._cramped = False
        self.path = path
        self.map_bytes = map_bytes

    @classmethod
    def open(cls, files: Files, directory: str, config: LmdbStoreConfig) -> Environment:
        """Open or create the environment in a directory that exists.

        ``Full``: no map that holds the file was granted, or a new file found no space. ``StorageError``: see
        ``library.typed``."""
        lmdb, path = library(), f"{directory}/{DATA_NAME}"
        size_bytes = _size(files, path)
        map_bytes = max(config.map_bytes, 2 * size_bytes)
        while True:
            try:
                env = lmdb.open(directory, map_size=map_bytes, max_readers=config.readers_max)
                break
            except lmdb.Error as error:
                if not map_refused(error):
                    raise typed(error, path) from error
                if map_bytes // 2 < max(MAP_BYTES_MIN, size_bytes):
                    fact = f"the system grants no map of {map_bytes} bytes; raise the limit of memory"
                    raise Full(fact, path=path) from error
                map_bytes //= 2
        files.sync_directory(directory)
        return cls(lmdb, env, files, path, config, map_bytes)

    # -- transactions ----------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[Any]:
        """A read transaction for one call; it sees what was durable when it began. ``StorageError``: unreadable."""
        self._check_process()
        self._gate.enter()
        try:
            txn = self._env.begin(buffers=True)
            try:
                yield txn
            finally:
                txn.abort()
        except self._lmdb.Error as error:
            raise typed(error, self.path) from error
        finally:
            self._gate.leave()

    @contextmanager
    def write(self) -> Iterator[Any]:
        """The write transaction; durable when the block is left, or nothing of it happened.

        ``Full``: no space; the environment is as before. ``StorageError``: see ``library.typed``."""
        self._check_process()
        with self._errors():
            txn = self._env.begin(write=True, buffers=True)
        try:
            with self._errors():
                yield txn
                txn.commit()
        except BaseException:
            self._abort(txn)
            raise

    # -- space -----------------------------------------------------------------------------------

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
        reserve = 0 if removing else self._config.reserve_bytes
        need = (used + pages) * self.page_bytes + reserve
        if need > self._file_bytes:
            self._extend(need)
        cramped = need > self._file_bytes
        if cramped or self._cramped:
            inside = min(self._file_bytes - reserve, self.map_bytes)
            self._set_map(max(inside, MAP_BYTES_MIN) if cramped else self.map_bytes)
        self._cramped = cramped

    def figures(self) -> dict[str, int]:
        """Sizes in bytes, and how many reads are under way."""
        return {
            "map_bytes": self.map_bytes,
            "file_bytes": self._file_bytes,
            "used_bytes": self._pages_used() * self.page_bytes,
            "readers": self._gate.readers,
        }

    def close(self) -> None:
        """Close, once the reads that have begun are over. Closing twice is harmless."""
        if self._process == os.getpid():
            with self._gate.drained():
                self._env.close()
        self._file.close()

    def _abort(self, txn: Any) -> None:
        """End a write transaction that did not commit.

        Drained: py-lmdb puts this off until no call is under way, so readers could do so for ever."""
        with self._gate.drained(), suppress(self._lmdb.Error):
            txn.abort()

    def _pages_used(self) -> int:
        return int(self._env.info()["last_pgno"]) + 1

    def _extend(self, need: int) -> None:
        """Reserve space of the file: whole steps, or as much as is needed; nothing on a full disk."""
        for unit in (self._config.file_step_bytes, self.page_bytes):
            size = -(-need // unit) * unit
            if size <= self._file_bytes:
                return
            with suppress(Full):
                self._file.preallocate(size)
                self._file_bytes = size
                return

    def _set_map(self, size_bytes: int) -> None:
        """Change the map, drained; if the system refuses, it is as before. LMDB unmaps first."""
        before = self._env.info()["map_size"]
        wanted = size_bytes // self.page_bytes * self.page_bytes
        if wanted == before:
            return
        with self._gate.drained(), self._errors():
            try:
                self._env.set_mapsize(wanted)
            except self._lmdb.Error:
                self._env.set_mapsize(before)
                raise

    def _check_process(self) -> None:
        if self._process != os.getpid():
            fact = "this process was forked from the one that opened the environment; spawn it and open anew"
            raise StorageError(fact, path=self.path)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._lmdb.Error as error:
            found = typed(error, self.path)
            if isinstance(found, Full):
                raise Full(self._why_full(), path=self.path) from error
            raise found from error

    def _why_full(self) -> str:
        if self._cramped:
            return f"the disk is full: the file stays at {self._file_bytes} bytes, its free pages do not suffice"
        used = self._pages_used() * self.page_bytes
        return f"the map of {self.map_bytes} bytes is full: {used} are in use; raise map_bytes and restart"


def _size(files: Files, path: str) -> int:
    if not files.exists(path):
        return 0
    file = files.open(path)
    try:
        return file.size()
    finally:
        file.close()
