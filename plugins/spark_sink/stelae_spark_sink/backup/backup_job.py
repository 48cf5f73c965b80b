"""Backs up a table: reads it as of one time, writes Parquet files, and compares both before the manifest is written."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql import Observation, SparkSession
from pyspark.sql.types import StructType

from stelae import __version__
from stelae.client import ScanToken, Table
from stelae.client.times import LOGICAL_BITS
from stelae.spi.errors import CallerError, StorageError
from stelae.spi.schema import Schema
from stelae_spark_sink.backup.backup_root import BackupRoot, rows_folder
from stelae_spark_sink.backup.chains import Backup
from stelae_spark_sink.backup.folder_names import backup_folder, table_folder
from stelae_spark_sink.backup.increments import check_tablets, older_rows, parent_of, whole_if_new
from stelae_spark_sink.backup.job_progress import JobProgress
from stelae_spark_sink.backup.manifest import (
    Kind,
    Manifest,
    StoredColumn,
    StoredFile,
    TableTotal,
    deleted_name,
    partition_to_json,
    stored_columns,
    time_text,
)
from stelae_spark_sink.backup.row_checks import RowCounts, counting, counts_by_file, counts_of, counts_of_table, total
from stelae_spark_sink.backup.table_parts import stored_schema, table_frame
from stelae_spark_sink.options import TARGET_PARTITION_BYTES, TIMEOUT_S, SourceOptions
from stelae_spark_sink.table_access import opened

SUFFIX = ".parquet"
_ONE_MICROSECOND = 1 << LOGICAL_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupPlan:
    """What one backup reads."""

    id: str  #: Id of the backup.
    table: Table
    schema: Schema  #: Columns of the table when the time was chosen, or after it.
    partition: Mapping[str, Any]  #: As ``Table.partition`` has it.
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
    def stored(self) -> StructType:
        """The schema of the files."""
        return stored_schema(self.columns, self.deleted)

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns, as the files name them."""
        return tuple(column.stored_as for column in self.columns if column.id in self.schema.key)

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
    table = opened(options)
    if not table.table_id:
        raise CallerError(f"table {table.name!r} is in a cluster without masters; only tables of masters have backups")
    found = parent_of(root, table, wanted)
    parent = None if found is None else found.manifest
    at = table.latest(timeout_s=timeout_s)
    if parent is not None:
        at = max(at, parent.at + _ONE_MICROSECOND)
    table.refresh(timeout_s=timeout_s)
    schema, partition = table.schema, table.partition
    older = {} if parent is None else older_rows(table, parent, timeout_s)
    if parent is None or older is None:
        parent, older = None, {}
        scan = table.scan([*table.columns], at=at, timeout_s=timeout_s)
    else:
        scan = table.diff(parent.at, at, [*table.columns], timeout_s=timeout_s)
    tokens = scan.tokens(target_bytes=options[TARGET_PARTITION_BYTES])
    plan = BackupPlan(
        id=uuid.uuid4().hex,
        table=table,
        schema=schema,
        partition=partition,
        at=at,
        parent=parent,
        columns=stored_columns(schema, older),
        tokens=tokens if parent is None else [*whole_if_new(tokens, parent)],
    )
    if parent is not None:
        check_tablets(parent, plan.tablets)
    return plan


def run_backup(
    spark: SparkSession,
    root: BackupRoot,
    options: SourceOptions,
    wanted: Kind | None,
    *,
    counts_table: bool,
    progress: bool | None,
) -> Backup:
    """Back up a table, and return the backup once it is complete and verified.

    With ``counts_table``, an incremental backup also reads all rows of the table, for ``Manifest.total``.

    Raises:
        StorageError: the files do not have the rows that were read. There is no manifest, so there is no backup.
        CannotContinue, NoBackup, NoSuchTable, Unavailable: as :func:`plan_backup` does.
    """
    plan = plan_backup(root, options, wanted)
    table = plan.table
    folder = f"{root.path}/{table_folder(table.name, table.table_id)}/{backup_folder(plan.at, plan.kind, plan.id)}"
    what = f"{plan.kind.value} backup of {table.name}"
    with JobProgress(spark, what, progress):
        read = _write_rows(spark, options, plan, folder)
    sizes = {name: size for name, size in root.files.sizes(rows_folder(folder)).items() if name.endswith(SUFFIX)}
    with JobProgress(spark, f"verifying the {what}", progress):
        found = counts_by_file(spark, folder, sorted(sizes), plan.stored, plan.key, plan.deleted)
    if total(found) != read:
        facts = f"{total(found).rows} rows, and {read.rows} were read from the table"
        fact = facts if total(found).rows != read.rows else f"other values than the {read.rows} rows of the table"
        raise StorageError(f"the backup is not complete: its files have {fact}; run it again", path=folder)
    files = tuple(
        StoredFile(name=name, size_bytes=sizes[name], rows=counts.rows, checksum=counts.checksum)
        for name, counts in sorted(found.items())
    )
    manifest = manifest_of(plan, files, read)
    whole: RowCounts | None = read
    if plan.parent is not None and counts_table:
        with JobProgress(spark, f"counting the rows of {table.name}", progress):
            whole = _table_counts(spark, options, plan, manifest)
    elif plan.parent is not None:
        whole = None
    counted = None if whole is None else TableTotal(rows=whole.rows, checksum=whole.checksum)
    return root.finish(folder, msgspec.structs.replace(manifest, total=counted))


def _table_counts(spark: SparkSession, options: SourceOptions, plan: BackupPlan, manifest: Manifest) -> RowCounts:
    """Return the counts of all rows of the table, at the time of a backup."""
    scan = plan.table.scan([column.name for column in plan.columns], at=plan.at, timeout_s=options[TIMEOUT_S])
    return counts_of_table(spark, options, scan.tokens(target_bytes=options[TARGET_PARTITION_BYTES]), manifest)


def _write_rows(spark: SparkSession, options: SourceOptions, plan: BackupPlan, folder: str) -> RowCounts:
    """Write the rows of a backup into files, and return the counts of the rows that the table returned."""
    seen = Observation()
    frame = table_frame(spark, options, plan.tokens, plan.stored)
    counted = frame.observe(seen, *counting(plan.stored.names, plan.key, plan.deleted))
    counted.write.parquet(rows_folder(folder))
    return counts_of(seen.get)


def manifest_of(plan: BackupPlan, files: tuple[StoredFile, ...], counts: RowCounts) -> Manifest:
    """Return the manifest of a backup with these files and rows."""
    table, parent = plan.table, plan.parent
    return Manifest(
        id=plan.id,
        kind=plan.kind,
        table=table.name,
        table_id=table.table_id,
        at=plan.at,
        time=time_text(plan.at),
        parent="" if parent is None else parent.id,
        since=0 if parent is None else parent.at,
        columns=plan.columns,
        key=tuple(column.name for column in plan.schema.key_layout.columns),
        partition=partition_to_json(plan.schema, plan.partition),
        replicas=table.replicas,
        tablets=tuple(plan.tablets),
        deleted_column=plan.deleted,
        files=files,
        rows=counts.rows,
        deleted=counts.deleted,
        made_by=f"stelae {__version__}",
    )
