"""The functions of ``stelae.spark`` that back up and restore tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from stelae.client import connect
from stelae.client.times import At, hybrid
from stelae.spi.errors import CallerError
from stelae_spark_sink.backup.backup_job import run_backup
from stelae_spark_sink.backup.backup_root import BackupEntry, BackupRoot
from stelae_spark_sink.backup.chains import Backup, chain, latest, superfluous
from stelae_spark_sink.backup.job_progress import JobProgress
from stelae_spark_sink.backup.manifest import Kind
from stelae_spark_sink.backup.restore_job import Restored, RestoreOptions, run_restore
from stelae_spark_sink.backup.row_checks import problems_of
from stelae_spark_sink.functions import text_of
from stelae_spark_sink.options import MASTERS, TABLE, TARGET_PARTITION_BYTES, TIMEOUT_S, SourceOptions, Use
from stelae_spark_sink.table_access import CONNECT_TIMEOUT_S

KEEP_S = 86_400.0
"""How long a replaced table can be recalled, in seconds."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of the check of one backup."""

    backup: Backup
    problems: Sequence[str]  #: What is wrong, with the paths of files; empty: nothing is.


def backup_table(
    spark: SparkSession,
    masters: str | Sequence[str],
    table: str,
    folder: str,
    *,
    kind: str = "auto",
    count_table: bool = True,
    target_partition_bytes: int | None = None,
    progress: bool | None = None,
) -> Backup:
    """Back up a table to Parquet files, and return the backup once it is complete and verified.

    All tablets are read as of one time. The files are read again and compared with what the table returned, by counts
    and checksums, before the manifest is written. A call that fails leaves a folder without a manifest, which is no
    backup; call it again.

    Args:
        spark: a session without Connect.
        masters: addresses of the masters, as ``"host:port,host:port"`` or a list.
        table: name of the table.
        folder: folder of all backups, on any file system that Spark reaches, such as ``"s3a://bucket/backups"``.
        kind: ``"full"`` reads all rows, ``"incremental"`` those that changed since the last backup. ``"auto"`` is
            incremental if the folder has a backup of the table.
        count_table: an incremental backup also reads all rows of the table, and stores their number and checksum.
            A restore compares the restored table with them. ``False``: it reads only what has changed, and a restore
            reports the number of rows.
        target_partition_bytes: about how many bytes one task reads; ``None``: 128 MiB.
        progress: whether to show progress on standard error; ``None``: on a terminal.

    Raises:
        CannotContinue: the table does not keep its history since the last backup, or a range was dropped since. Take a
            full backup.
        NoBackup: there is no backup that an incremental one could continue.
        StorageError: the folder cannot be written, or its files differ from the table.
        NoSuchTable, Unavailable: the table does not exist, or no master answers.
    """
    kinds = {"auto": None, **{one.value: one for one in Kind}}
    if kind not in kinds:
        raise CallerError(f"kind is {kind!r}; known: {', '.join(kinds)}")
    given = {MASTERS.name: text_of(masters), TABLE.name: table}
    if target_partition_bytes is not None:
        given[TARGET_PARTITION_BYTES.name] = str(target_partition_bytes)
    root, options = BackupRoot(spark, folder), SourceOptions(given, Use.READ)
    return run_backup(spark, root, options, kinds[kind], counts_table=count_table, progress=progress)


def restore_table(
    spark: SparkSession,
    masters: str | Sequence[str],
    table: str,
    folder: str,
    *,
    name: str | None = None,
    at: At | None = None,
    replace: bool = False,
    keep_s: float = KEEP_S,
    replicas: int | None = None,
    progress: bool | None = None,
) -> Restored:
    """Restore a table from its backups, with all rows, columns, defaults and ranges that it had at that time.

    The files are compared with their manifests before anything is written. The rows are written into a table with an
    interim name, which gets its name at the end. If the call fails, call it again: it continues.

    Args:
        spark: a session without Connect.
        masters: addresses of the masters of any cluster.
        table: name of the table when it was backed up.
        folder: folder of all backups.
        name: name of the restored table; ``None``: the same.
        at: restore the latest backup of this time or before, as a ``datetime`` or a hybrid timestamp; ``None``: the
            latest backup.
        replace: drop a table that has the name, when the restored one is complete.
        keep_s: how long the replaced table can be recalled, in seconds.
        replicas: number of replicas of each tablet; ``None``: as many as the table had.
        progress: whether to show progress on standard error; ``None``: on a terminal.

    Raises:
        NoBackup, BrokenChain, BadManifest: there is no such backup, or it cannot be read.
        RestoreRefused: there is a table of the name.
        DamagedBackup: files differ from their manifests. Nothing was written.
        StorageError: the restored table differs from the backup.
        Unavailable: no master answers, or the cluster cannot create the table.
    """
    addresses = text_of(masters)
    options = RestoreOptions(
        masters=addresses,
        table=table,
        name=table if name is None else name,
        at=None if at is None else hybrid(at),
        replace=replace,
        keep_s=keep_s,
        replicas=replicas,
        timeout_s=TIMEOUT_S.default or 0.0,
        progress=progress,
    )
    with connect(addresses, timeout_s=CONNECT_TIMEOUT_S) as client:
        return run_restore(spark, BackupRoot(spark, folder), client, options)


def list_backups(spark: SparkSession, folder: str, table: str | None = None) -> list[BackupEntry]:
    """Return the backups in a folder, and folders that are unfinished or damaged backups; those of a table by time.

    Args:
        spark: a session without Connect.
        folder: folder of all backups.
        table: name of a table, with the backups under its other names; ``None``: all tables.

    Raises:
        StorageError: the folder cannot be read.
    """
    return [*BackupRoot(spark, folder).entries(table)]


def verify_backups(
    spark: SparkSession, folder: str, table: str | None = None, *, at: At | None = None, progress: bool | None = None
) -> list[Verified]:
    """Read the files of backups, compare them with the manifests by counts and checksums, and return what is wrong.

    Args:
        spark: a session without Connect.
        folder: folder of all backups.
        table: name of a table; ``None``: all tables.
        at: with ``table``: only the backups that a restore to this time would read.
        progress: whether to show progress on standard error; ``None``: on a terminal.

    Raises:
        NoBackup: there is no such backup.
        BadManifest, BrokenChain: a manifest is damaged, or a backup continues one that is missing.
        StorageError: the folder cannot be read.
    """
    if at is not None and table is None:
        raise CallerError("at needs the name of a table")
    root = BackupRoot(spark, folder)
    found = root.backups() if table is None else root.backups_or_others(table)
    if table is not None:
        last = latest(found, table, None if at is None else hybrid(at))
        found = found if at is None else chain(found, last)
    for one in found:
        chain(found, one)
    return [Verified(one, _problems_of(spark, root, one, progress)) for one in found]


def clean_backups(
    spark: SparkSession, folder: str, table: str | None = None, *, before: At, dry_run: bool = False
) -> list[Backup]:
    """Remove backups that are no longer needed, and return them.

    Backups of ``before`` or later stay, and so do the last one before it of each table and all backups that these
    continue. So every time from ``before`` on can be restored as now. Unfinished backups stay, too.

    Args:
        spark: a session without Connect.
        folder: folder of all backups.
        table: name of a table, with the backups under its other names; ``None``: all tables.
        before: the oldest time that must stay restorable, as a ``datetime`` or a hybrid timestamp.
        dry_run: return the backups, and remove none.

    Raises:
        BadManifest, BrokenChain: a manifest is damaged, or a backup continues one that is missing. None is removed.
        StorageError: the folder cannot be read or changed.
    """
    root = BackupRoot(spark, folder)
    found = superfluous(root.backups(table), hybrid(before))
    for one in [] if dry_run else found:
        root.remove(one)
    return [*found]


def _problems_of(spark: SparkSession, root: BackupRoot, backup: Backup, progress: bool | None) -> list[str]:
    with JobProgress(spark, f"verifying {backup.manifest.table} of {backup.manifest.time}", progress):
        return problems_of(spark, root.files, backup)
