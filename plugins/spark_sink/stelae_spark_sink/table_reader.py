"""Reads a table in Spark tasks, all at one time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from stelae.client import ScanToken
from stelae_spark_sink.arrow_batches import SparkBatches
from stelae_spark_sink.options import TIMESTAMP_AS_OF, SourceOptions
from stelae_spark_sink.planner_flag import PushedFilters, warn_once_if_off
from stelae_spark_sink.spark_filters import divided
from stelae_spark_sink.spark_types import checked_fields
from stelae_spark_sink.table_access import scan_of, table_of


class TokenPartition(InputPartition):
    """A part of the scan, as the bytes of its token."""

    def __init__(self, token: bytes) -> None:
        self.token = token


class TableReader(DataSourceReader):
    """Reads a table. The driver plans with it, and sends it to each task.

    Args:
        options: the options of the source.
        asked: the columns that Spark reads, in order, with their types.

    Raises:
        SchemaMismatch: the table has no such columns.
        NoSuchTable, Unavailable: the table does not exist, or no master answered.
    """

    def __init__(self, options: SourceOptions, asked: StructType) -> None:
        table = table_of(options)
        self._options = options
        self._asked = asked
        self._schema = table.schema
        self._columns = checked_fields(table.schema.by_name, asked, table.name)
        self._where: list[tuple[Any, ...]] = []

    @property
    def pushFilters(self) -> PushedFilters:
        """The function with which Spark offers filters; see :class:`PushedFilters`."""
        warn_once_if_off()
        return PushedFilters(self._push)

    def _push(self, filters: list[Any]) -> Sequence[Any]:
        """Keep the filters that tablets judge as Spark does, and return the others."""
        found = divided(self._schema, filters)
        self._where += found.pushed
        return found.left

    def partitions(self) -> Sequence[InputPartition]:
        """Return the parts of the scan, all at one time."""
        table = table_of(self._options)
        at = self._options.get(TIMESTAMP_AS_OF) or table.latest()
        scan = table.scan(self._columns, self._where, at=at)
        return [TokenPartition(token.to_bytes()) for token in scan.tokens()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a part as ``pyarrow.RecordBatch`` objects."""
        if not isinstance(partition, TokenPartition):
            return  # Spark makes one task without a partition when there are no partitions.
        batches = SparkBatches(self._asked)
        for batch in scan_of(self._options, ScanToken.from_bytes(partition.token)):
            yield batches.converted(batch)
