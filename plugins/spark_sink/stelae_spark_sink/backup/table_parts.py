"""A scan or a diff of a table as a DataFrame with the columns of the Parquet files: one task for each token.

Times are without a zone, in UTC, so that the time zone of the session has no effect on the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from stelae.client import ScanToken, to_datetime
from stelae.spi.errors import CallerError, TooOld
from stelae.spi.schema import data_type
from stelae_spark_sink.backup.manifest import StoredColumn
from stelae_spark_sink.options import SourceOptions
from stelae_spark_sink.spark_types import spark_type
from stelae_spark_sink.table_access import contacts_of, scan_of


def stored_type(kind: str) -> t.DataType:
    """Return the Spark type of a column in the files."""
    found = spark_type(data_type(kind))
    return t.TimestampNTZType() if isinstance(found, t.TimestampType) else found


def stored_schema(columns: Sequence[StoredColumn], deleted: str) -> t.StructType:
    """Return the schema of the files. ``deleted`` is the name of the column that is true for deleted rows, or empty."""
    fields = [t.StructField(column.stored_as, stored_type(column.type)) for column in columns]
    return t.StructType([*fields, *([t.StructField(deleted, t.BooleanType())] if deleted else [])])


def table_frame(
    spark: SparkSession, options: SourceOptions, tokens: Sequence[ScanToken], schema: t.StructType
) -> DataFrame:
    """Return the rows of tokens as a DataFrame.

    Args:
        spark: the session.
        options: names the cluster.
        tokens: of a scan or a diff. Their columns are those of the schema, in its order.
        schema: gives the columns their names. In the rows of a scan, the column of a diff that says whether a row was
            deleted is false.
    """
    parts, options = [token.to_bytes() for token in tokens], options.found_by(contacts_of(options))

    def read(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for (number,) in zip(batch.column(0).to_pylist(), strict=True):
                yield from _rows_of(options, parts[number], schema.names)

    count = len(parts)
    return spark.range(0, count, 1, max(1, count)).mapInArrow(read, schema)


def _rows_of(options: SourceOptions, part: bytes, names: Sequence[str]) -> Iterator[Any]:
    """Yield the rows of a token as ``pyarrow.RecordBatch`` objects whose columns have these names."""
    import pyarrow as pa

    token = ScanToken.from_bytes(part)
    try:
        for batch in scan_of(options, token):
            flags = [pa.repeat(False, batch.num_rows)] if batch.num_columns < len(names) else []
            yield pa.RecordBatch.from_arrays([*batch.columns, *flags], names=[*names])
    except TooOld as error:
        floor = to_datetime(error.floor).isoformat()
        raise CallerError(
            f"table {token.table!r} keeps its history since {floor}, and the backup reads older rows; keep it longer "
            "than a backup takes, with the setting maintenance.history_retention_s of the nodes"
        ) from error
