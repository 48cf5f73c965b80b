"""One LMDB environment: its transactions, and the space for them.

Space
    1. The map is large from the start. It changes only while no read is under way (``ReaderGate``): while the disk is
       full it is cut to what the file has, and LMDB then uses the free pages of the file and nothing else.
    2. The file is extended here before a transaction, and not by LMDB inside one. LMDB reports a short write as
       ``EIO``, which looks like a failing disk.

Threads: any thread may ``read``; everything else is for the one thread that writes. Values are views into the map and
are valid only within their transaction. A caller that keeps a value copies it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Generic, Protocol, Self, TypeVar

from stelae.spi.errors import Full, StorageError
from stelae.spi.services import File, Files
from stelae_shared.lmdb_files.gate import ReaderGate
from stelae_shared.lmdb_files.library import library, map_refused, of_the_system, typed

DATA_NAME = "data.mdb"
MAP_BYTES_MIN = 1 << 16


class EnvironmentSettings(Protocol):
    """The settings of an engine that an environment uses."""

    @property
    def readers_max(self) -> int:
        """Number of reads at one time."""

    @property
    def file_growth_bytes(self) -> int:
        """The file is extended in steps of this many bytes."""


S = TypeVar("S", bound=EnvironmentSettings)


class BaseEnvironment(Generic[S]):
    """One open environment. Engines derive their own classes, which decide on its space. Created by ``opened`` only."""

    def __init__(self, lmdb: Any, env: Any, files: Files, path: str, settings: S, map_bytes: int) -> None:
        self._lmdb = lmdb
        self._env = env
        self._settings = settings
        self._gate = ReaderGate(settings.readers_max)
        self._process = os.getpid()
        self._file: File = files.open(path, writable=True)
        self._file_bytes = self._file.size()
        self._cramped = False
        self.page_bytes: int = env.stat()["psize"]
        self.path = path
        self.map_bytes = map_bytes

    @classmethod
    def opened(
        cls, files: Files, directory: str, settings: S, wanted_by: str, map_bytes: int, map_bytes_min: int
    ) -> Self:
        """Open or create the environment in a directory that exists.

        Args:
            files: the disk.
            directory: of the environment.
            settings: of the engine.
            wanted_by: name of the engine, for an error if the library is missing.
            map_bytes: address space to reserve. It is halved until the system grants it.
            map_bytes_min: the smallest map that is useful.

        Raises:
            Full: no map of that size was granted, or a new file found no space.
            StorageError: see ``library.typed``.
        """
        lmdb, path = library(wanted_by), f"{directory}/{DATA_NAME}"
        while True:
            try:
                env = lmdb.open(directory, map_size=map_bytes, max_readers=settings.readers_max)
                break
            except lmdb.Error as error:
                if not map_refused(error):
                    found = typed(error, path)
                    if of_the_system(error) and not isinstance(found, Full):
                        found = StorageError(f"LMDB cannot open it: {error}", path=path)
                    raise found from error
                if map_bytes // 2 < map_bytes_min:
                    fact = f"the system grants no map, not even one of {map_bytes} bytes; raise the limit of memory"
                    raise Full(fact, path=path) from error
                map_bytes //= 2
        files.sync_directory(directory)
        return cls(lmdb, env, files, path, settings, map_bytes)

    # -- transactions ----------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[Any]:
        """Yield a read transaction. It sees what was durable when it began. ``StorageError``: it cannot be read."""
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
        """Yield the write transaction. When the block is left, it is durable; after an exception, it has changed
        nothing.

        ``Full``: no space; the environment is unchanged. ``StorageError``: see ``library.typed``."""
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

    def figures(self) -> dict[str, int]:
        """Return sizes in bytes, and the number of reads under way."""
        return {
            "map_bytes": self.map_bytes,
            "file_bytes": self._file_bytes,
            "used_bytes": self._pages_used() * self.page_bytes,
            "readers": self._gate.readers,
        }

    def close(self) -> None:
        """Wait for the reads under way, then close. Closing twice is harmless."""
        if self._process == os.getpid():
            with self._gate.drained():
                self._env.close()
        self._file.close()

    # -- space: for subclasses ---------------------------------------------------------------------

    def _reserve(self, need: int, kept_bytes: int) -> None:
        """Extend the file to ``need`` bytes. On a full disk, cut the map to the file's length without ``kept_bytes``.

        Then a transaction that does not fit fails with ``Full`` before it has written a byte."""
        if need > self._file_bytes:
            self._extend(need)
        cramped = need > self._file_bytes
        if cramped or self._cramped:
            inside = min(self._file_bytes - kept_bytes, self.map_bytes)
            self._set_map(max(inside, MAP_BYTES_MIN) if cramped else self.map_bytes)
        self._cramped = cramped

    def _extend(self, need: int) -> None:
        """Extend the file by complete steps, or else by just what is needed. On a full disk, change nothing."""
        for unit in (self._settings.file_growth_bytes, self.page_bytes):
            size = -(-need // unit) * unit
            if size <= self._file_bytes:
                return
            with suppress(Full):
                self._file.preallocate(size)
                self._file_bytes = size
                return

    def _set_map(self, size_bytes: int) -> None:
        """Change the size of the map while no read is under way. If the system refuses, restore the old size.

        LMDB unmaps before it maps again."""
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

    def _pages_used(self) -> int:
        return int(self._env.info()["last_pgno"]) + 1

    def _abort(self, txn: Any) -> None:
        """End a write transaction that did not commit, while no read is under way.

        py-lmdb delays the abort while any call is under way, so readers could delay it forever."""
        with self._gate.drained(), suppress(self._lmdb.Error):
            txn.abort()

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
            if not isinstance(found, Full):
                raise found from error
            fact = f"the disk is full: the file stays at {self._file_bytes} bytes, its free pages do not suffice"
            raise Full(fact if self._cramped else self._why_full(found), path=self.path) from error

    def _why_full(self, found: Full) -> str:
        """Return the message for a map that is full although the disk is not."""
        return found.fact
