"""Makes the readers and writers of the data source from its options."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from stelae.client.read_options import column_ids
from stelae_spark_sink.batch_writer import BatchWriter
from stelae_spark_sink.change_reader import ChangeReader, ChangeStreamReader
from stelae_spark_sink.feed_schema import feed_schema, is_feed
from stelae_spark_sink.options import COLUMNS, WRITING_VIEW, BadOption, SourceOptions, Use, has_option_of_writes
from stelae_spark_sink.spark_types import spark_schema
from stelae_spark_sink.stream_writer import StreamWriter
from stelae_spark_sink.table_access import table_of
from stelae_spark_sink.table_reader import TableReader


def schema(given: Mapping[str, str]) -> StructType:
    """Return the columns of the table, or those of the option ``columns``; of a change feed, with those that it adds.

    Spark asks for the schema before it says whether it will read a batch or a stream.

    Raises:
        BadOption: an option cannot be used.
        NoSuchTable: there is no such table.
        SchemaMismatch: the table has no such column.
        Unavailable: no master answered.
    """
    try:
        options = SourceOptions(given, Use.READ, Use.STREAM_READ)
    except BadOption as error:
        if has_option_of_writes(given):
            raise BadOption(f"{error}; {WRITING_VIEW}") from None
        raise
    table = table_of(options, planning=True)
    if is_feed(options):
        return feed_schema(table.schema, options)
    return spark_schema(table.schema.project(column_ids(table.schema, options.get(COLUMNS))).columns)


def reader(given: Mapping[str, str], asked: StructType) -> DataSourceReader:
    """Return a reader of the table or its changes, for the columns that Spark asks for. Raises as :func:`schema`."""
    options = SourceOptions(given, Use.READ)
    return ChangeReader(options, asked) if is_feed(options) else TableReader(options, asked)


def stream_reader(given: Mapping[str, str], asked: StructType) -> DataSourceStreamReader:
    """Return a reader of the changes of the table, for the columns that Spark asks for. Raises as :func:`schema`.

    Raises:
        BadOption: ``readChangeFeed`` is not set.
    """
    options = SourceOptions(given, Use.STREAM_READ)
    if not is_feed(options):
        raise BadOption(
            "a stream reads the changes of a table: set the option 'readChangeFeed' to true. It begins with all rows "
            "of the table, or after 'startingTimestamp'"
        )
    return ChangeStreamReader(options, asked)


def writer(given: Mapping[str, str], columns: StructType, *, overwrite: bool) -> DataSourceArrowWriter:
    """Return a writer of the table, for a DataFrame with these columns. Raises as ``BatchWriter`` does."""
    return BatchWriter(SourceOptions(given, Use.WRITE), columns, overwrite=overwrite)


def stream_writer(given: Mapping[str, str], columns: StructType, *, overwrite: bool) -> DataSourceStreamArrowWriter:
    """Return a writer of the table, for a stream with these columns.

    Raises:
        BadOption: the output mode is ``complete``, or an option cannot be used.
    """
    if overwrite:
        raise BadOption(
            "the output mode 'complete' would overwrite the table in each batch; use outputMode('update') with the "
            "operation upsert, which keeps the newest result of each key"
        )
    return StreamWriter(SourceOptions(given, Use.STREAM_WRITE), columns)
