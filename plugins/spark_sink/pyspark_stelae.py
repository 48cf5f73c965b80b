"""Registers the data source ``stelae`` with Spark.

Spark imports every top-level module whose name begins with ``pyspark_`` and registers its class ``DefaultSource``. If
one such import fails, Spark registers none of them. This module therefore imports only PySpark, and everything else
when Spark uses the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader
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
        """Return a reader of the table that the options name."""
        from stelae_spark_sink import data_source

        return data_source.reader(self.options, schema)
