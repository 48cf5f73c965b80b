"""Writes groups to RocksDB and SQLite: each group is one batch, or one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from stelae.spi.extras import require
from stelae_bench.wal_replay import GroupReplay

_KEY_BYTES = 8


class RocksDb(GroupReplay):
    """RocksDB with its default options: one ``WriteBatch`` for each group, with ``sync`` if it must be durable.

    Raises:
        MissingExtra: rocksdict is not installed.
    """

    name = "rocksdb"

    def __init__(self, directory: Path) -> None:
        self._library = require("rocksdict", extra="bench", wanted_by="the comparison with RocksDB")
        self._database: Any = self._library.Rdict(str(directory / self.name), self._library.Options(raw_mode=True))
        self._synced = self._library.WriteOptions()
        self._synced.sync = True
        self._unsynced = self._library.WriteOptions()
        self._last = 0

    def prepare(self, bodies: Sequence[bytes]) -> None:
        """Do nothing: the database allocates its own space."""

    def write(self, bodies: Sequence[bytes], *, sync: bool = True) -> None:
        batch = self._library.WriteBatch(raw_mode=True)
        last = self._last
        for body in bodies:
            last += 1
            batch.put(last.to_bytes(_KEY_BYTES, "big"), body)
        self._database.write(batch, self._synced if sync else self._unsynced)
        self._last = last

    def free_space(self) -> None:
        """Remove all entries and their files."""
        ends = bytes(_KEY_BYTES), (self._last + 1).to_bytes(_KEY_BYTES, "big")
        self._database.delete_range(*ends)
        self._database.flush()
        self._database.compact_range(None, None)

    def close(self) -> None:
        self._database.close()


class Sqlite(GroupReplay):
    """SQLite in WAL mode: one transaction for each group; ``synchronous=FULL`` if it must be durable, else ``OFF``.

    A synced transaction makes earlier ones durable, too, because they are in the same file."""

    name = "sqlite"

    def __init__(self, directory: Path) -> None:
        self._database = sqlite3.connect(directory / "log.sqlite", isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._synced = False
        self._set_synced(True)
        self._database.execute("CREATE TABLE log (number INTEGER PRIMARY KEY, body BLOB NOT NULL)")
        self._last = 0

    def prepare(self, bodies: Sequence[bytes]) -> None:
        """Do nothing: the database allocates its own space."""

    def write(self, bodies: Sequence[bytes], *, sync: bool = True) -> None:
        if sync is not self._synced:
            self._set_synced(sync)
        execute = self._database.execute
        execute("BEGIN IMMEDIATE")
        self._database.executemany("INSERT INTO log VALUES (?, ?)", enumerate(bodies, self._last + 1))
        execute("COMMIT")
        self._last += len(bodies)

    def _set_synced(self, synced: bool) -> None:
        self._database.execute(f"PRAGMA synchronous={'FULL' if synced else 'OFF'}")
        self._synced = synced

    def free_space(self) -> None:
        """Remove all entries, and truncate the log file."""
        self._database.execute("DELETE FROM log")
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        self._database.close()


def versions() -> dict[str, str]:
    """Return the versions of the installed databases."""
    found = {"sqlite": sqlite3.sqlite_version}
    for name in ("rocksdict", "lmdb"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
