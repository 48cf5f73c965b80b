"""The environment of a node: transactions, and the space for them.

Space
    1. The map is large from the start. It changes only while no read is under way (``Gate``): it grows
       when it is full (``grow``), is lent a reserve for removals (``lend_reserve``), and shrinks to what
       the file has while the disk is full (``make_room``).
    2. The file is extended here, ahead of a transaction, and not by LMDB inside one: LMDB reports a
       short write as ``EIO``, which could not be told from a failing disk.
    3. ``reserve_bytes`` of the file are kept from appends: a removal copies pages before it frees any.

Threads: ``read`` from any thread, everything else from the WAL thread. Values are views into the map
and die with their transaction; whoever wants to keep something copies it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from stelae.spi.errors import Full, StorageError
from stelae.spi.services import File, Files
from stelae_wal_lmdb.config import LmdbConfig
from stelae_wal_lmdb.format import HEADER_KEY, NAMESPACE, key
from stelae_wal_lmdb.gate import Gate
from stelae_wal_lmdb.library import library, map_refused, typed

DATA_NAME = "data.mdb"
MAP_BYTES_MIN = 1 << 16
_PROBE_KEY = key(NAMESPACE, (1 << 64) - 1)
_SLACK_PAGES = 64
"""For the tree's own pages: a path of a handful per log, splits, and the list of free pages."""


class Environment:
    """One open LMDB environment. Created by ``open`` only."""

    def __init__(self, lmdb: Any, env: Any, files: Files, path: str, config: LmdbConfig, map_bytes: int) -> None:
        self._lmdb = lmdb
        self._env = env
        self._config = config
        self._gate = Gate(config.readers_max)
        self._process = os.getpid()
        self._file: File = files.open(path, writable=True)
        self._file_bytes = self._file.size()
        self._page_bytes: int = env.stat()["psize"]
        self._cramped = False
        self.path = path
        self.map_bytes = map_bytes

    @classmethod
    def open(cls, files: Files, directory: str, config: LmdbConfig) -> Environment:
        """Open or create the environment in a directory that exists.

        Raises:
            Full: no map of any size was granted, or a new file found no space.
            StorageError: see ``library.typed``.
        """
        lmdb, path, map_bytes = library(), f"{directory}/{DATA_NAME}", config.map_bytes
        while True:
            try:
                env = lmdb.open(directory, map_size=map_bytes, max_readers=config.readers_max)
                break
            except lmdb.Error as error:
                if not map_refused(error):
                    raise typed(error, path) from error
                if map_bytes // 2 < MAP_BYTES_MIN:
                    fact = f"the system grants no map, not even one of {map_bytes} bytes; raise the limit of memory"
                    raise Full(fact, path=path) from error
                map_bytes //= 2
        files.sync_directory(directory)
        return cls(lmdb, env, files, path, config, map_bytes)

    # -- transactions ----------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[Any]:
        """A read transaction for one call; it sees what was durable when it began.

        Raises:
            StorageError: the environment cannot be read.
        """
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

        Raises:
            Full: no space; the environment is as before.
            StorageError: see ``library.typed``.
        """
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

    def make_room(self, size_bytes: int, puts: int) -> None:
        """Extend the file for a transaction that puts ``puts`` values of so many bytes together.

        If the disk is full, LMDB may use the free pages of the file and nothing else: then a
        transaction that does not fit fails with ``Full`` before it has written a byte."""
        pages = size_bytes // self._page_bytes + 3 * puts + _SLACK_PAGES
        need = (self._pages_used() + pages) * self._page_bytes + self._config.reserve_bytes
        if need > self._file_bytes:
            self._extend(need)
        if self._cramped == (need > self._file_bytes):
            return
        self._cramped = not self._cramped
        inside = min(self._file_bytes - self._config.reserve_bytes, self.map_bytes)
        self._set_map(max(inside, MAP_BYTES_MIN) if self._cramped else self.map_bytes)

    def probe(self, size_bytes: int) -> None:
        """Raise ``Full`` unless a value of that size would fit now."""
        self._check_process()
        with self._errors():
            txn = self._env.begin(write=True)
            try:
                txn.put(_PROBE_KEY, bytes(size_bytes))
            finally:
                self._abort(txn)

    def grow(self) -> bool:
        """Double the map, drained; return whether it grew: the setting or the system may say no."""
        wanted = min(self.map_bytes * 2, self._config.map_bytes_max)
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

        What they free can be used when the block is left: LMDB gives pages out again in the second
        transaction after the one that freed them, and the two are done here."""
        before = int(self._env.info()["map_size"])
        with suppress(Full):
            self._extend(self._pages_used() * self._page_bytes + self._config.reserve_bytes)
        self._set_map(before + self._config.reserve_bytes)
        try:
            yield
            for _ in range(2):
                with self.write() as txn:
                    txn.put(HEADER_KEY, bytes(txn.get(HEADER_KEY)))
        finally:
            self._set_map(before)

    def figures(self) -> dict[str, float]:
        """Sizes, for people."""
        return {
            "map_bytes": self.map_bytes,
            "file_bytes": self._file_bytes,
            "used_bytes": self._pages_used() * self._page_bytes,
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
        for unit in (self._config.file_step_bytes, self._page_bytes):
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
        with self._gate.drained(), self._errors():
            try:
                self._env.set_mapsize(size_bytes // self._page_bytes * self._page_bytes)
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
            if self._cramped and isinstance(found, Full):
                fact = f"the disk is full: the file stays at {self._file_bytes} bytes, its free pages do not suffice"
                raise Full(fact, path=self.path) from error
            raise found from error


def offset_in_map(view: memoryview) -> int:
    """Where in its file a value of a transaction stands; 0 where the system does not say what is mapped."""
    address = int(pa.py_buffer(view).address)
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
