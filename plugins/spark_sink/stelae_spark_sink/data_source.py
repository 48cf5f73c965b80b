"""Makes the readers and writers of the data source from its options."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceReader, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from stelae.client.read_options import column_ids
from stelae_spark_sink.batch_writer import BatchWriter
from stelae_spark_sink.options import COLUMNS, BadOption, SourceOptions, Use
from stelae_spark_sink.spark_types import spark_schema
from stelae_spark_sink.stream_writer import StreamWriter
from stelae_spark_sink.table_access import table_of
from stelae_spark_sink.table_reader import TableReader


def schema(given: Mapping[str, str]) -> StructType:
    """Return the columns of the table, or those of the option ``columns``.

    Spark asks for the schema before it says whether it will read a batch or a stream.

    Raises:
        BadOption: an option cannot be used.
        NoSuchTable: there is no such table.
        SchemaMismatch: the table has no such column.
        Unavailable: no master answered.
    """
    options = SourceOptions(given, Use.READ, Use.STREAM_READ)
    table = table_of(options)
    return spark_schema(table.schema.project(column_ids(table.schema, options.get(COLUMNS))).columns)


def reader(given: Mapping[str, str], asked: StructType) -> DataSourceReader:
    """Return a reader of the table, for the columns that Spark asks for. Raises as :func:`schema` does."""
    return TableReader(SourceOptions(given, Use.READ), asked)


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
