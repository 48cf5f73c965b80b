"""Gives the Arrow batches of a scan the schema that Spark expects. The values are not copied."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as t

UTC = "UTC"
"""The zone of the times that Spark takes from a data source."""


class SparkBatches:
    """Converts batches of a scan.

    Args:
        asked: the columns that Spark reads, in the order of the batches.
    """

    def __init__(self, asked: t.StructType) -> None:
        self._asked = asked
        self._schema: Any = None

    def converted(self, batch: Any) -> Any:
        """Return a ``pyarrow.RecordBatch`` with the same buffers, and the field types and nullability of Spark.

        A time in UTC becomes a time with the zone UTC, unless Spark asks for a time without a zone."""
        import pyarrow as pa

        if self._schema is None:
            fields = zip(self._asked.fields, batch.schema, strict=True)
            self._schema = pa.schema([pa.field(f.name, _arrow_type(f, own), f.nullable) for f, own in fields])
        columns = [
            column if column.type == field.type else column.view(field.type)
            for column, field in zip(batch.columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _arrow_type(field: t.StructField, own: Any) -> Any:
    import pyarrow as pa

    return pa.timestamp("us", tz=UTC) if isinstance(field.dataType, t.TimestampType) else own.type
