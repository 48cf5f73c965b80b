"""Restores a table: verifies its backups, writes them into a table with another name, and then renames that table.

1. All files of the chain are compared with their manifests, before anything is written.
2. An interim table is created, or found: an earlier attempt may have made it.
3. Each backup of the chain is written as two epochs (ADR 64), which a repeated restore skips if they are complete.
4. The interim table gets its name. Until then there is no table of that name, or the old one is still complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

from stelae.client import Client, Epoch, LaterEpoch, RenameTable, Table
from stelae.client.locations import NoSuchTable
from stelae.client.writer_core import TIMEOUT_S_MAX
from stelae.spi.errors import CallerError, StorageError
from stelae.spi.write import OpKind
from stelae_spark_sink.backup.backup_root import BackupRoot
from stelae_spark_sink.backup.chains import Backup, chain, latest
from stelae_spark_sink.backup.job_progress import JobProgress
from stelae_spark_sink.backup.json_values import from_json
from stelae_spark_sink.backup.manifest import Manifest
from stelae_spark_sink.backup.restore_plan import ColumnSource, column_sources, epoch_of, interim_name, source_name
from stelae_spark_sink.backup.row_checks import counts_of_table, problems_of, read_files
from stelae_spark_sink.backup.table_parts import stored_schema, stored_type
from stelae_spark_sink.functions import write_table
from stelae_spark_sink.job_sources import source_of
from stelae_spark_sink.options import MASTERS, TABLE, TARGET_PARTITION_BYTES, SourceOptions, Use
from stelae_spark_sink.spark_types import quoted

PROBLEMS_MAX = 20
"""The most damaged files that an error names."""

_GONE = (NoSuchTable.code, "NO_TABLE")
"""Codes of the errors of a client and of the masters for a table that does not exist."""


class RestoreRefused(CallerError, code="RESTORE_REFUSED"):
    """A table has the name of the restored one, and it is not to be replaced."""


class DamagedBackup(StorageError, code="DAMAGED_BACKUP"):
    """Files of a backup are missing, or have other rows than were backed up. Nothing was restored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """What is restored, and how. The fields are those of ``restore_table``."""

    masters: str
    table: str
    name: str
    at: int | None
    replace: bool
    keep_s: float
    replicas: int | None
    timeout_s: float
    progress: bool | None


@dataclass(frozen=True, slots=True)
class Restored:
    """A restored table."""

    table: str
    backups: Sequence[Backup]  #: The chain that was written.
    rows: int  #: Rows of the restored table.
    replaced: str = ""  #: Id of the table that was dropped for it, by which it can be recalled. Empty: none was.


def run_restore(spark: SparkSession, root: BackupRoot, client: Client, options: RestoreOptions) -> Restored:
    """Restore a table.

    Raises:
        NoBackup, BrokenChain, BadManifest: there is no such backup, or it cannot be read.
        RestoreRefused: there is a table of the name.
        DamagedBackup: the files differ from the manifests. Nothing was written.
        StorageError: the restored table differs from the one that was backed up. It keeps its interim name.
        AnalysisException: rows were not written. The same call continues the restore.
    """
    known = root.backups_or_others(options.table)
    backups = chain(known, latest(known, options.table, options.at))
    last = backups[-1].manifest
    if options.name in client.tables() and not options.replace:
        raise RestoreRefused(
            f"there is a table {options.name!r}; restore under another name with --as (name=), or replace it with "
            "--replace (replace=True), which drops it when the restored table is complete"
        )
    with JobProgress(spark, f"verifying {len(backups)} backups of {last.table}", options.progress):
        check_backups(spark, root, backups)
    table = _interim_table(client, last, options)
    for number in range(len(backups)):
        _write_backup(spark, table, backups, number, options)
    rows = _check_rows(spark, table, last, options)
    return Restored(options.name, backups, rows, _give_name(client, table, options))


def check_backups(spark: SparkSession, root: BackupRoot, backups: Sequence[Backup]) -> None:
    """Check the files of backups. ``DamagedBackup``: some differ from the manifests; the message has their paths."""
    problems = [problem for backup in backups for problem in problems_of(spark, root.files, backup)]
    if problems:
        more = f"\n  and {len(problems) - PROBLEMS_MAX} more" if len(problems) > PROBLEMS_MAX else ""
        listed = "\n  ".join(problems[:PROBLEMS_MAX]) + more
        raise DamagedBackup(f"nothing was restored, because files are damaged; choose an earlier time:\n  {listed}")


def _interim_table(client: Client, last: Manifest, options: RestoreOptions) -> Table:
    """Return the table that is written: a new one, or that of an earlier attempt to restore the same backup."""
    name = interim_name(options.name, last.id)
    if name in client.tables():
        return client.table(name, timeout_s=options.timeout_s)
    return client.create_table(
        name,
        last.plain_columns(),
        last.key,
        partition=last.plain_partition(),
        replicas=options.replicas or last.replicas,
        timeout_s=options.timeout_s,
    )


def _write_backup(
    spark: SparkSession, table: Table, backups: Sequence[Backup], number: int, options: RestoreOptions
) -> None:
    """Write the rows of one backup, unless an earlier attempt has done so."""
    manifests = [backup.manifest for backup in backups]
    manifest, source = manifests[number], source_name(manifests[-1].id)
    if not manifest.files:
        return
    frame = read_files(
        spark,
        backups[number].folder,
        [file.name for file in manifest.files],
        stored_schema(manifest.columns, manifest.deleted_column),
    )
    is_deleted = f.col(quoted(manifest.deleted_column)) if manifest.deleted_column else f.lit(False)
    columns = column_sources(manifests, number)
    key = [one for one in columns if one.name in table.key]
    parts = [(OpKind.DELETE, is_deleted, key), (OpKind.UPSERT, ~is_deleted, columns)]
    for kind, condition, wanted in parts if manifest.deleted else parts[1:]:
        epoch, operation = epoch_of(number, deletes=kind is OpKind.DELETE), kind.name.lower()
        if _is_to_be_written(table.epoch(source_of(source, operation), epoch), options.timeout_s):
            rows = frame.where(condition).select(*map(_column, wanted))
            with JobProgress(spark, f"restoring {manifest.table} of {manifest.time}", options.progress):
                write_table(rows, options.masters, table.name, operation=operation, source=source, epoch=epoch)


def _is_to_be_written(epoch: Epoch, timeout_s: float) -> bool:
    """Begin an epoch, and return whether no earlier attempt has completed it.

    A restore begins an epoch when the one before is complete. So it was complete if a later one has begun."""
    try:
        return epoch.begin(timeout_s=min(timeout_s, TIMEOUT_S_MAX))
    except LaterEpoch:
        return False


def _give_name(client: Client, table: Table, options: RestoreOptions) -> str:
    """Give the restored table its name, and return the id of the table that was dropped for it; empty: none was.

    The same restore may run twice, and both may come here. So tables are dropped and renamed by their ids, and the
    restored table never is the one that is dropped.

    Raises:
        NoSuchTable: the interim table was dropped. The old table is not.
        CallerError: another table has the name now, and is not to be replaced.
    """
    client.table(table.table_id, timeout_s=options.timeout_s)  # Without it, the old table would be dropped for nothing.
    replaced = _drop_old(client, table, options) if options.replace else ""
    try:
        client.alter_table(table.table_id, RenameTable(options.name))
    except CallerError:
        if _id_of(client, options.name) != table.table_id:
            raise
    return replaced


def _drop_old(client: Client, table: Table, options: RestoreOptions) -> str:
    """Drop the table that has the name of the restored one; return its id. Empty: there is none, or not any more."""
    old = _id_of(client, options.name)
    if old is None or old == table.table_id:
        return ""
    try:
        client.drop_table(old, keep_s=options.keep_s)
    except CallerError as error:
        if error.code not in _GONE:
            raise
        return ""  # Another run of the restore has dropped it.
    return old


def _id_of(client: Client, name: str) -> str | None:
    """Return the id of the table of a name; ``None``: there is none."""
    try:
        return client.table(name).table_id
    except CallerError as error:
        if error.code not in _GONE:
            raise
        return None


def _column(source: ColumnSource) -> Column:
    """Return a column of the restored table as an expression of the columns of the files."""
    if source.stored_as:
        return f.col(quoted(source.stored_as)).alias(source.name)
    kind, value = stored_type(source.type), from_json(source.type, source.value)
    if isinstance(value, bytes):
        found = f.lit(bytearray(value))
    else:
        found = f.lit(value if value is None or isinstance(value, bool) else str(value))
    return found.cast(kind).alias(source.name)


def _check_rows(spark: SparkSession, table: Table, manifest: Manifest, options: RestoreOptions) -> int:
    """Compare the restored table with the table that was backed up, and return the number of its rows.

    Raises:
        StorageError: they differ.
    """
    at = table.latest(timeout_s=options.timeout_s)
    scan = table.scan([column.name for column in manifest.columns], at=at, timeout_s=options.timeout_s)
    tokens = scan.tokens(target_bytes=TARGET_PARTITION_BYTES.default)
    source = SourceOptions({MASTERS.name: options.masters, TABLE.name: table.name}, Use.READ)
    with JobProgress(spark, f"verifying {options.name}", options.progress):
        found = counts_of_table(spark, source, tokens, manifest)
    expected = manifest.total
    if expected is not None and (found.rows, found.checksum) != (expected.rows, expected.checksum):
        fact = f"the restored table has {found.rows} rows, and the table had {expected.rows}"
        fact = fact if found.rows != expected.rows else "the restored table has other values than the table had"
        step = "drop it, and restore again, or as of an earlier backup"
        raise StorageError(f"{fact} at {manifest.time}; it keeps the name {table.name!r}: {step}")
    return found.rows
