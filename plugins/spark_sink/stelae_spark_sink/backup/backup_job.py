"""Backs up a table: reads it as of one time, writes Parquet files, and compares both before the manifest is written."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Observation, SparkSession

from stelae import __version__
from stelae.client import ScanToken, Table
from stelae.client.times import LOGICAL_BITS
from stelae.spi.errors import CallerError, StorageError
from stelae_spark_sink.backup.backup_root import BackupRoot, rows_folder
from stelae_spark_sink.backup.chains import Backup
from stelae_spark_sink.backup.folder_names import backup_folder, table_folder
from stelae_spark_sink.backup.increments import check_tablets, older_rows, parent_of
from stelae_spark_sink.backup.job_progress import JobProgress
from stelae_spark_sink.backup.manifest import (
    Kind,
    Manifest,
    StoredColumn,
    StoredFile,
    deleted_name,
    partition_to_json,
    stored_columns,
    time_text,
)
from stelae_spark_sink.backup.row_checks import RowCounts, counting, counts_by_file, counts_of, total
from stelae_spark_sink.backup.table_parts import stored_schema, table_frame
from stelae_spark_sink.options import TARGET_PARTITION_BYTES, TIMEOUT_S, SourceOptions
from stelae_spark_sink.table_access import table_of

_ONE_MICROSECOND = 1 << LOGICAL_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupPlan:
    """What one backup reads."""

    table: Table
    at: int  #: Hybrid timestamp of the rows.
    parent: Manifest | None  #: ``None``: a full backup.
    columns: tuple[StoredColumn, ...]
    tokens: Sequence[ScanToken]

    @property
    def kind(self) -> Kind:
        """Full or incremental."""
        return Kind.FULL if self.parent is None else Kind.INCREMENTAL

    @property
    def deleted(self) -> str:
        """The column of the files that says whether a row was deleted; empty: a full backup has none."""
        return "" if self.parent is None else deleted_name(self.columns)

    @property
    def tablets(self) -> list[str]:
        """Ids of the tablets that are read."""
        return sorted({part.tablet_id for token in self.tokens for part in token.parts or ()})


def plan_backup(root: BackupRoot, options: SourceOptions, wanted: Kind | None) -> BackupPlan:
    """Choose the time, the kind and the parts of a backup.

    The time is chosen before the columns are looked up. So a column that was added meanwhile has its values at that
    time, which are those of older rows, and the next backup knows it already.

    Raises:
        CannotContinue: an incremental backup is not possible, and a full one is.
        NoBackup: an incremental backup is wanted, and there is none to continue.
        NoSuchTable, Unavailable: the table does not exist, or a leader does not answer.
        CallerError: the cluster has no masters, so that nothing identifies the table.
    """
    timeout_s = options[TIMEOUT_S]
    table = table_of(options)
    if not table.table_id:
        raise CallerError(f"table {table.name!r} is in a cluster without masters; only tables of masters have backups")
    parent = parent_of(root, table, wanted)
    at = table.latest(timeout_s=timeout_s)
    if parent is not None:
        at = max(at, parent.manifest.at + _ONE_MICROSECOND)
    table.refresh(timeout_s=timeout_s)
    values: Mapping[int, Any] | None = {}
    if parent is not None:
        values = older_rows(table, parent.manifest, timeout_s)
    if parent is None or values is None:
        scan = table.scan([*table.columns], at=at, timeout_s=timeout_s)
        tokens = scan.tokens(target_bytes=options[TARGET_PARTITION_BYTES])
        return BackupPlan(table=table, at=at, parent=None, columns=stored_columns(table.schema, {}), tokens=tokens)
    diff = table.diff(parent.manifest.at, at, [*table.columns], timeout_s=timeout_s)
    tokens = diff.tokens(target_bytes=options[TARGET_PARTITION_BYTES])
    columns = stored_columns(table.schema, values)
    plan = BackupPlan(table=table, at=at, parent=parent.manifest, columns=columns, tokens=tokens)
    check_tablets(parent.manifest, plan.tablets)
    return plan


def run_backup(
    spark: SparkSession, root: BackupRoot, options: SourceOptions, wanted: Kind | None, *, progress: bool | None
) -> Backup:
    """Back up a table, and return the backup once it is complete and verified.

    Raises:
        StorageError: the files do not have the rows that were read. There is no manifest, so there is no backup.
        CannotContinue, NoBackup, NoSuchTable, Unavailable: as :func:`plan_backup` does.
    """
    plan = plan_backup(root, options, wanted)
    table = plan.table
    folder = f"{root.path}/{table_folder(table.name, table.table_id)}/{backup_folder(plan.at, plan.kind)}"
    schema = stored_schema(plan.columns, plan.deleted)
    key = [column.stored_as for column in plan.columns if column.name in table.key]
    what = f"{plan.kind.value} backup of {table.name}"
    seen = Observation()
    frame = table_frame(spark, options, plan.tokens, schema)
    with JobProgress(spark, what, progress):
        frame.observe(seen, *counting(schema.names, key, plan.deleted)).write.parquet(rows_folder(folder))
    read = counts_of(seen.get)
    sizes = root.files.sizes(rows_folder(folder))
    names = sorted(name for name in sizes if name.endswith(".parquet"))
    with JobProgress(spark, f"verifying the {what}", progress):
        found = counts_by_file(spark, folder, names, schema, key, plan.deleted)
    if total(found) != read:
        facts = f"{total(found).rows} rows, and {read.rows} were read from the table"
        fact = facts if total(found).rows != read.rows else f"other values than the {read.rows} rows of the table"
        raise StorageError(f"the backup is not complete: its files have {fact}; run it again", path=folder)
    files = tuple(
        StoredFile(name=name, size_bytes=sizes[name], rows=found[name].rows, checksum=found[name].checksum)
        for name in names
        if name in found
    )
    return root.finish(folder, manifest_of(plan, files, read))


def manifest_of(plan: BackupPlan, files: tuple[StoredFile, ...], counts: RowCounts) -> Manifest:
    """Return the manifest of a backup with these files and rows."""
    table, parent = plan.table, plan.parent
    return Manifest(
        id=uuid.uuid4().hex,
        kind=plan.kind,
        table=table.name,
        table_id=table.table_id,
        at=plan.at,
        time=time_text(plan.at),
        parent="" if parent is None else parent.id,
        since=0 if parent is None else parent.at,
        columns=plan.columns,
        key=tuple(table.key),
        partition=partition_to_json(table.schema, table.partition),
        replicas=table.replicas,
        tablets=tuple(plan.tablets),
        deleted_column=plan.deleted,
        files=files,
        rows=counts.rows,
        deleted=counts.deleted,
        made_by=f"stelae {__version__}",
    )
