"""The functions of ``stelae.spark``: they set the options of the data source."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, SparkSession

from stelae.client.filters import Filter
from stelae.client.times import At, hybrid
from stelae_spark_sink.json_filters import to_json
from stelae_spark_sink.options import COLUMNS, MASTERS, TABLE, TIMESTAMP_AS_OF, WHERE


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
            ``None``: each query reads the table as of the time at which it is planned.

    Raises:
        AnalysisException: the table does not exist, no master answers, or an argument does not fit the table.
    """
    reader = spark.read.format("stelae").option(TABLE.name, table)
    reader = reader.option(MASTERS.name, masters if isinstance(masters, str) else ",".join(masters))
    if columns is not None:
        reader = reader.option(COLUMNS.name, json.dumps([*columns]))
    if where is not None:
        reader = reader.option(WHERE.name, to_json(where))
    if at is not None:
        reader = reader.option(TIMESTAMP_AS_OF.name, str(hybrid(at)))
    return reader.load()
