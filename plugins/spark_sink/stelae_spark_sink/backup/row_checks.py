"""Counts and checksums of rows, and the comparison of Parquet files with a manifest.

The checksum of rows is the exclusive or of their 64-bit hashes. It does not depend on the order of rows, or on how they
are divided into files. It is computed from the values: of the rows that a table has returned, and of those that the
files return. Both are equal only if the files have what the table had."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from stelae.client import ScanToken
from stelae_spark_sink.backup.backup_root import rows_folder
from stelae_spark_sink.backup.chains import Backup
from stelae_spark_sink.backup.hadoop_files import HadoopFiles
from stelae_spark_sink.backup.manifest import Manifest, StoredFile
from stelae_spark_sink.backup.table_parts import stored_schema, table_frame
from stelae_spark_sink.job_errors import SPARK_ERRORS, first_fact
from stelae_spark_sink.options import SourceOptions
from stelae_spark_sink.spark_types import quoted

_ROWS, _DELETED, _CHECKSUM, _FILE = "rows", "deleted", "checksum", "file"

_PATTERN = re.compile(r"[{}\[\]*?\\]")
"""Characters by which Spark takes a path for a pattern."""


@dataclass(frozen=True, slots=True)
class RowCounts:
    """What was counted of some rows."""

    rows: int = 0  #: With deleted ones.
    deleted: int = 0
    checksum: int = 0

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(self.rows + other.rows, self.deleted + other.deleted, self.checksum ^ other.checksum)


def counting(names: Sequence[str], key: Sequence[str], deleted: str) -> list[Column]:
    """Return the aggregations that :func:`counts_of` reads.

    Args:
        names: all columns. A null counts in the hash, so that it differs from a value that moved to its neighbour.
        key: the columns that are never null.
        deleted: the column that is true for deleted rows; empty: there are none.
    """
    hashed: list[Column] = []
    for name in names:
        column = f.col(quoted(name))
        hashed += [column] if name in key else [column, column.isNull()]
    return [
        f.count(f.lit(1)).alias(_ROWS),
        (f.count_if(f.col(quoted(deleted))) if deleted else f.lit(0)).alias(_DELETED),
        f.coalesce(f.bit_xor(f.xxhash64(*hashed)), f.lit(0)).alias(_CHECKSUM),
    ]


def counts_of(row: Mapping[str, int]) -> RowCounts:
    """Return what the aggregations of :func:`counting` have found."""
    return RowCounts(row[_ROWS], row[_DELETED], row[_CHECKSUM])


def total(counts: Mapping[str, RowCounts]) -> RowCounts:
    """Return the counts of several files as one."""
    return reduce(RowCounts.__add__, counts.values(), RowCounts())


def counts_of_table(
    spark: SparkSession, options: SourceOptions, tokens: Sequence[ScanToken], manifest: Manifest
) -> RowCounts:
    """Read the tokens of a scan of a whole table, with the columns of a manifest in their order, and count them."""
    schema = stored_schema(manifest.columns, "")
    key = [column.stored_as for column in manifest.key_columns]
    counted = table_frame(spark, options, tokens, schema).agg(*counting(schema.names, key, "")).collect()
    return counts_of(counted[0].asDict())


def read_files(spark: SparkSession, folder: str, names: Sequence[str], schema: t.StructType) -> DataFrame:
    """Return the rows of Parquet files. A file that is missing or damaged fails the query."""
    reader = spark.read.schema(schema).options(ignoreCorruptFiles="false", ignoreMissingFiles="false")
    return reader.parquet(*[literal_path(f"{rows_folder(folder)}/{name}") for name in names])


def literal_path(path: str) -> str:
    """Return a path for a reader of Spark, which would take one with brackets for a pattern."""
    return _PATTERN.sub(r"\\\g<0>", path)


def counts_by_file(
    spark: SparkSession, folder: str, names: Sequence[str], schema: t.StructType, key: Sequence[str], deleted: str
) -> dict[str, RowCounts]:
    """Read Parquet files and return the counts of each one that has rows."""
    if not names:
        return {}
    frame = read_files(spark, folder, names, schema)
    grouped = frame.groupBy(f.col("_metadata.file_name").alias(_FILE))
    rows = grouped.agg(*counting(schema.names, key, deleted)).collect()
    return {row[_FILE]: counts_of(row.asDict()) for row in rows}


def problems_of(spark: SparkSession, files: HadoopFiles, backup: Backup) -> list[str]:
    """Compare the files of a backup with its manifest: all must be there, with their size, rows and checksum.

    Returns:
        What is wrong, with the paths of the files; empty: nothing is.
    """
    manifest, folder = backup.manifest, rows_folder(backup.folder)
    sizes = files.sizes(folder)
    problems, readable = [], []
    for file in manifest.files:
        size = sizes.get(file.name)
        if size == file.size_bytes:
            readable.append(file)
        else:
            fact = "is missing" if size is None else f"has {size} bytes, and the manifest says {file.size_bytes}"
            problems.append(f"{folder}/{file.name} {fact}")
    return problems + _wrong(spark, backup, readable)


def _wrong(spark: SparkSession, backup: Backup, files: Sequence[StoredFile]) -> list[str]:
    """Return which files cannot be read, or have other rows than the manifest says.

    A query fails for one damaged file, and does not always name it. So the files are halved until it is found."""
    manifest, folder = backup.manifest, rows_folder(backup.folder)
    try:
        found = _counted(spark, backup.folder, manifest, [file.name for file in files])
    except SPARK_ERRORS as error:
        if len(files) == 1:
            return [f"{folder}/{files[0].name} cannot be read: {first_fact(error)}"]
        half = len(files) // 2
        return _wrong(spark, backup, files[:half]) + _wrong(spark, backup, files[half:])
    problems = []
    for file in files:
        counts = found.get(file.name, RowCounts())
        if (counts.rows, counts.checksum) != (file.rows, file.checksum):
            fact = f"has {counts.rows} rows; {file.rows} were backed up"
            fact = fact if counts.rows != file.rows else "has other values than were backed up"
            problems.append(f"{folder}/{file.name} {fact}")
    return problems


def _counted(spark: SparkSession, folder: str, manifest: Manifest, names: Sequence[str]) -> dict[str, RowCounts]:
    schema = stored_schema(manifest.columns, manifest.deleted_column)
    key = [column.stored_as for column in manifest.key_columns]
    return counts_by_file(spark, folder, names, schema, key, manifest.deleted_column)
