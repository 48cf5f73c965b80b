"""The functions of ``stelae.spark``: they set the options of the data source, and create tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from stelae.client import connect
from stelae.client.filters import Filter
from stelae.client.times import At, hybrid
from stelae.client.write_methods import TIMEOUT_S
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.write import OpKind
from stelae_spark_sink.json_filters import to_json
from stelae_spark_sink.options import (
    BEFORE_IMAGES,
    COLUMNS,
    ENDING_TIMESTAMP,
    EPOCH,
    FAIL_ON_DROPPED_RANGES,
    FAIL_ON_ROW_ERRORS,
    IGNORE_NULL,
    MASTERS,
    MAX_ROWS_PER_TRIGGER,
    OPERATION,
    READ_CHANGE_FEED,
    REJECTS_TABLE,
    REPLACE_WHERE,
    SOURCE,
    STARTING_TIMESTAMP,
    TABLE,
    TIMESTAMP_AS_OF,
    WHERE,
)
from stelae_spark_sink.rejects_table import KEY as REJECTS_KEY
from stelae_spark_sink.rejects_table import definition as rejects_definition
from stelae_spark_sink.spark_types import column_types
from stelae_spark_sink.worker_python import source_expected


def read_table(
    spark: SparkSession,
    masters: str | Sequence[str],
    table: str,
    *,
    columns: Sequence[str] | None = None,
    where: Filter | Iterable[Filter] | None = None,
    at: At | None = None,
) -> DataFrame:
    """Return a table as a DataFrame. Rows are read when Spark runs a query on it.

    Args:
        spark: the session.
        masters: addresses of the masters, as ``"host:port,host:port"`` or a list.
        table: name of the table.
        columns: the columns to read, in order; ``None``: all. Columns that are left out cost nothing.
        where: filters of the Python client, ``(column, operation, value)`` or a list of these. Tablets judge them,
            whether ``spark.sql.python.filterPushdown.enabled`` is on or off.
        at: read the table as of this time: a ``datetime`` (local time if it has no zone) or a hybrid timestamp.
            ``None``: the time at which Spark plans the first query of the DataFrame. Later queries of the same
            DataFrame read at this time, too.

    Raises:
        AnalysisException: the table does not exist, no master answers, or an argument does not fit the table.
        SourceNotFound: the Python of Spark's workers has no Stelae.
    """
    reader = spark.read.format("stelae").option(TABLE.name, table)
    reader = reader.option(MASTERS.name, text_of(masters))
    if columns is not None:
        reader = reader.option(COLUMNS.name, json.dumps([*columns]))
    if where is not None:
        reader = reader.option(WHERE.name, to_json(where))
    if at is not None:
        reader = reader.option(TIMESTAMP_AS_OF.name, str(hybrid(at)))
    with source_expected():
        return reader.load()


def read_changes(
    spark: SparkSession,
    masters: str | Sequence[str],
    table: str,
    *,
    since: At | str,
    until: At | str | None = None,
    columns: Sequence[str] | None = None,
    before_images: bool = False,
    fail_on_dropped_ranges: bool = True,
) -> DataFrame:
    """Return the changes of a table between two times as a DataFrame. They are read when Spark runs a query on it.

    Args:
        spark: the session.
        masters: addresses of the masters, as ``"host:port,host:port"`` or a list.
        table: name of the table.
        since: a ``datetime``, a hybrid timestamp, or the position of a change feed.
        until: the same; ``None``: the last write before the query is planned.
        columns: the columns to read; those of the key are always read. ``None``: all.
        before_images: also read the rows as they were at ``since``.
        fail_on_dropped_ranges: fail if a range of the position ``since`` was dropped, or one that the query reads. The
            rows of a dropped range do not appear as deleted.

    Raises:
        AnalysisException: the history is not kept any more, or an argument does not fit the table.
        SourceNotFound: the Python of Spark's workers has no Stelae.
    """
    reader = spark.read.format("stelae").options(
        **_feed_options(masters, table, columns, before_images, fail_on_dropped_ranges)
    )
    reader = reader.option(STARTING_TIMESTAMP.name, _place_of(since))
    if until is not None:
        reader = reader.option(ENDING_TIMESTAMP.name, _place_of(until))
    with source_expected():
        return reader.load()


def stream_changes(
    spark: SparkSession,
    masters: str | Sequence[str],
    table: str,
    *,
    since: At | str | None = None,
    columns: Sequence[str] | None = None,
    before_images: bool = False,
    fail_on_dropped_ranges: bool = True,
    rows_max: int | None = None,
) -> DataFrame:
    """Return the changes of a table as a streaming DataFrame.

    Args:
        spark: the session.
        masters: addresses of the masters, as ``"host:port,host:port"`` or a list.
        table: name of the table.
        since: a ``datetime``, a hybrid timestamp, or the position of a change feed; ``None``: begin with all rows.
        columns: the columns to read; those of the key are always read. ``None``: all.
        before_images: also read the rows as they were before each batch.
        fail_on_dropped_ranges: fail if a range was dropped that the query has read or has to read. The rows of a
            dropped range do not appear as deleted.
        rows_max: the most changed rows of one batch; ``None``: no limit.

    Raises:
        AnalysisException: the table does not exist, no master answers, or an argument does not fit the table.
        SourceNotFound: the Python of Spark's workers has no Stelae.
    """
    reader = spark.readStream.format("stelae").options(
        **_feed_options(masters, table, columns, before_images, fail_on_dropped_ranges)
    )
    if since is not None:
        reader = reader.option(STARTING_TIMESTAMP.name, _place_of(since))
    if rows_max is not None:
        reader = reader.option(MAX_ROWS_PER_TRIGGER.name, rows_max)
    with source_expected():
        return reader.load()


def _feed_options(
    masters: str | Sequence[str],
    table: str,
    columns: Sequence[str] | None,
    before_images: bool,
    fail_on_dropped_ranges: bool,
) -> dict[str, str]:
    options = {MASTERS.name: text_of(masters), TABLE.name: table, READ_CHANGE_FEED.name: "true"}
    options[BEFORE_IMAGES.name] = str(before_images).lower()
    options[FAIL_ON_DROPPED_RANGES.name] = str(fail_on_dropped_ranges).lower()
    return options if columns is None else {**options, COLUMNS.name: json.dumps([*columns])}


def _place_of(time: At | str) -> str:
    return time if isinstance(time, str) else str(hybrid(time))


def write_table(
    frame: DataFrame,
    masters: str | Sequence[str],
    table: str,
    *,
    operation: str = "upsert",
    overwrite: bool = False,
    replace_where: Filter | Iterable[Filter] | None = None,
    ignore_null: bool = False,
    source: str | None = None,
    epoch: int | None = None,
    fail_on_row_errors: bool = True,
    rejects_table: str | None = None,
) -> None:
    """Write a DataFrame into a table, and wait until its rows are durable.

    Args:
        frame: the rows. Columns that it lacks keep their values, or get their default.
        masters: addresses of the masters, as ``"host:port,host:port"`` or a list.
        table: name of the table, which must exist; see :func:`create_table_from`.
        operation: ``insert``, ``upsert``, ``update``, ``delete``, ``insert_ignore``, ``update_ignore`` or
            ``delete_ignore``.
        overwrite: afterwards, delete the rows that the table had before and that are not in the frame.
        replace_where: delete only rows for which these filters hold, as :func:`read_table` takes them. Rows of the
            frame for which they do not hold are not written, which is a row error. Implies ``overwrite``.
        ignore_null: a null leaves its column alone; a new row gets the default of the column.
        source: name of a job whose runs follow each other; with ``epoch``, a run that is complete is not written again.
        epoch: number of the run; rises from run to run.
        fail_on_row_errors: raise if rows were not written, after all others are written.
        rejects_table: name of a table for the rows that were not written; see :func:`create_rejects_table`.

    Raises:
        AnalysisException: the table cannot store the rows, rows were not written, or no master answers.
        SourceNotFound: the Python of Spark's workers has no Stelae.
    """
    overwrite = overwrite or replace_where is not None
    writer = frame.write.format("stelae").option(MASTERS.name, text_of(masters)).option(TABLE.name, table)
    given = {
        SOURCE.name: source,
        EPOCH.name: epoch,
        OPERATION.name: None if overwrite else operation,
        REPLACE_WHERE.name: None if replace_where is None else to_json(replace_where),
        IGNORE_NULL.name: ignore_null or None,
        REJECTS_TABLE.name: rejects_table,
    }
    if overwrite and operation != OpKind.UPSERT.name.lower():
        raise CallerError(f"overwrite replaces rows: leave out operation={operation!r}")
    for name, value in given.items():
        if value is not None:
            writer = writer.option(name, value)
    writer = writer.option(FAIL_ON_ROW_ERRORS.name, fail_on_row_errors)
    with source_expected():
        writer.mode("overwrite" if overwrite else "append").save()


def upsert(frame: DataFrame, masters: str | Sequence[str], table: str, **options: Any) -> None:
    """Insert the rows of a DataFrame, or replace its columns in rows that exist; see :func:`write_table`."""
    write_table(frame, masters, table, operation="upsert", **options)


def create_table_from(
    frame: DataFrame,
    masters: str | Sequence[str],
    table: str,
    *,
    key: str | Sequence[str],
    partition: Mapping[str, Any] | None = None,
    replicas: int = 3,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Create a table with the columns of a DataFrame. It is empty; write the rows with :func:`write_table`.

    Args:
        frame: gives names and types of the columns. Columns outside of the key may be null.
        masters: addresses of the masters, as ``"host:port,host:port"`` or a list.
        table: name of the table.
        key: name or names of the key columns, in key order. A row is found by its key, which exists once.
        partition: how rows are spread over tablets, as ``Client.create_table`` takes it, for example
            ``{"hash": [{"columns": ["id"], "buckets": 4}]}``; ``None``: one tablet.
        replicas: number of replicas of each tablet; odd.
        timeout_s: how long the creation is waited for.

    Raises:
        UnsupportedSparkType: a column has a type that no table stores; the message names a workaround.
        SchemaMismatch: the frame has no such key column, or two columns of one name.
        TableExists: there is a table of this name.
        Unavailable: no master answers, or the table is not ready in time.
    """
    names = [key] if isinstance(key, str) else [*key]
    unknown = [name for name in names if name not in frame.columns]
    if unknown:
        raise SchemaMismatch(f"the frame has no key column {unknown[0]!r}; it has: {', '.join(frame.columns)}")
    repeated = [name for name, count in Counter(frame.columns).items() if count > 1]
    if repeated:
        raise SchemaMismatch(f"the frame has several columns {repeated[0]!r}; rename one of them, or leave it out")
    columns = [
        {"name": name, "type": kind, "nullable": name not in names} for name, kind in column_types(frame.schema).items()
    ]
    with connect(text_of(masters)) as client:
        client.create_table(table, columns, names, partition=partition, replicas=replicas, timeout_s=timeout_s)


def create_rejects_table(
    masters: str | Sequence[str], table: str, *, buckets: int = 1, replicas: int = 3, timeout_s: float = TIMEOUT_S
) -> None:
    """Create a table for rows that jobs could not write, for the option ``rejectsTable``. Many jobs can share it.

    Its columns: ``table``, ``source`` and ``epoch`` name the job, ``row_hash`` identifies the row, ``operation`` is
    what should have been done, ``code`` and ``reason`` say why it was not, and ``row`` has the row as JSON.

    Args:
        masters: addresses of the masters, as ``"host:port,host:port"`` or a list.
        table: name of the table.
        buckets: number of tablets over which the rows are spread.
        replicas: number of replicas of each tablet; odd.
        timeout_s: how long the creation is waited for.

    Raises:
        TableExists: there is a table of this name.
        Unavailable: no master answers, or the table is not ready in time.
    """
    partition = {"hash": [{"columns": ["row_hash"], "buckets": buckets}]} if buckets > 1 else None
    key = [*REJECTS_KEY]
    with connect(text_of(masters)) as client:
        client.create_table(
            table, rejects_definition(), key, partition=partition, replicas=replicas, timeout_s=timeout_s
        )


def text_of(masters: str | Sequence[str]) -> str:
    """Return addresses of masters as the text of the option ``masters``."""
    return masters if isinstance(masters, str) else ",".join(masters)
