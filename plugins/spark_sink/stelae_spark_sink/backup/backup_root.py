"""The folder under which all backups are: it finds them, and stores their manifests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import SparkSession

from stelae_spark_sink.backup.chains import Backup
from stelae_spark_sink.backup.folder_names import is_backup_folder, table_prefix, table_suffix
from stelae_spark_sink.backup.hadoop_files import HadoopFiles
from stelae_spark_sink.backup.manifest import MANIFEST_NAME, ROWS_NAME, BadManifest, Manifest


class State(StrEnum):
    """Whether a folder is a backup."""

    WHOLE = "whole"
    UNFINISHED = "unfinished"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class BackupEntry:
    """A folder that has the name of a backup."""

    folder: str
    state: State
    backup: Backup | None = None  #: Unless it is unfinished or its manifest is damaged.
    problem: str = ""  #: Why there is no backup.


class BackupRoot:
    """The backups under one folder, with those of all tables.

    Args:
        spark: a session.
        path: the folder. It does not have to exist.

    Raises:
        StorageError: Spark does not reach the file system of the folder.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.files = HadoopFiles(spark)
        self.path = self.files.absolute(path)

    def entries(self, table: str | None = None) -> Iterator[BackupEntry]:
        """Yield all folders of backups, of tables that once had a name or of all tables; those of a table by time.

        The folders of a table that was renamed are included. The folder of a table with another name may begin in the
        same way, so its manifests decide. If it has none, it counts."""
        tables = self.files.folders(self.path)
        if table is None:
            yield from self._in(tables)
            return
        suffixes = {
            one[one.rindex(".") :]: None
            for one in tables
            if one.startswith(table_prefix(table)) and self._may_be_of(table, one)
        }
        yield from self._in([one for one in tables if "." in one and one[one.rindex(".") :] in suffixes])

    def _may_be_of(self, table: str, folder: str) -> bool:
        """Return whether a folder has a backup of a table under this name, or none with a manifest."""
        names = {entry.backup.manifest.table for entry in self._in([folder]) if entry.backup is not None}
        return not names or table in names

    def backups(self, table: str | None = None) -> Sequence[Backup]:
        """Return all backups of tables that once had a name, or of all tables. Unfinished ones are left out.

        Raises:
            BadManifest: a manifest is damaged, so that it is unknown which backup it is.
        """
        return _usable(self.entries(table))

    def backups_or_others(self, table: str) -> Sequence[Backup]:
        """Return the backups of a table; those of all tables if it has none, for an error that names these tables.

        Raises:
            BadManifest: a manifest of the table is damaged.
        """
        return self.backups(table) or [entry.backup for entry in self.entries() if entry.backup is not None]

    def backups_of(self, table_id: str) -> Sequence[Backup]:
        """Return all backups of a table, whatever its names were; raises as :meth:`backups` does."""
        return _usable(self._in([one for one in self.files.folders(self.path) if one.endswith(table_suffix(table_id))]))

    def _in(self, tables: Sequence[str]) -> Iterator[BackupEntry]:
        for table in tables:
            for name in self.files.folders(f"{self.path}/{table}"):
                if is_backup_folder(name):
                    yield self._entry(f"{self.path}/{table}/{name}")

    def _entry(self, folder: str) -> BackupEntry:
        where = f"{folder}/{MANIFEST_NAME}"
        content = self.files.read(where)
        if content is None:
            return BackupEntry(
                folder, State.UNFINISHED, problem="it has no manifest: the backup is running, or has failed"
            )
        try:
            return BackupEntry(folder, State.WHOLE, Backup(folder, Manifest.from_bytes(content, where)))
        except BadManifest as error:
            return BackupEntry(folder, State.DAMAGED, problem=str(error))

    def finish(self, folder: str, manifest: Manifest) -> Backup:
        """Store the manifest of a backup, which makes it one."""
        self.files.write(f"{folder}/{MANIFEST_NAME}", manifest.to_bytes())
        return Backup(folder, manifest)

    def remove(self, backup: Backup) -> None:
        """Remove a backup. Its manifest is removed first, so that a backup is whole or none at any time."""
        self.files.remove(f"{backup.folder}/{MANIFEST_NAME}")
        self.files.remove(backup.folder)


def _usable(entries: Iterator[BackupEntry]) -> list[Backup]:
    found = []
    for entry in entries:
        if entry.backup is not None:
            found.append(entry.backup)
        elif entry.state is State.DAMAGED:
            raise BadManifest(f"{entry.problem}; or remove the folder {entry.folder}")
    return found


def rows_folder(folder: str) -> str:
    """Return the folder of the Parquet files of a backup."""
    return f"{folder}/{ROWS_NAME}"
