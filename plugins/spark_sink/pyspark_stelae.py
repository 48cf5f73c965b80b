"""Registers the data source ``stelae`` with Spark.

Spark imports every top-level module whose name begins with ``pyspark_`` and registers its class ``DefaultSource``. If
one such import fails, Spark registers none of them. This module therefore imports only PySpark, and everything else
when Spark uses the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """The data source ``stelae``. Each method calls the same method of ``stelae_spark_sink.data_source``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return "stelae"

    def schema(self) -> StructType:
        """Return the columns of the table that the options name."""
        from stelae_spark_sink import data_source

        return data_source.schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the table that the options name, or of its changes."""
        from stelae_spark_sink import data_source

        return data_source.reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of the changes of the table that the options name."""
        from stelae_spark_sink import data_source

        return data_source.stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return a writer of the table that the options name."""
        from stelae_spark_sink import data_source

        return data_source.writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return a writer of the batches of a stream, for the table that the options name."""
        from stelae_spark_sink import data_source

        return data_source.stream_writer(self.options, schema, overwrite=overwrite)
