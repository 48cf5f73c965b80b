"""A data source and sink of Spark that do nothing: they show the cost of Spark and of its Python workers alone.

The source has its rows as Arrow batches in memory. The sink counts the rows of its batches and forgets them. Spark
imports this module in its Python workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

NAME = "stelae_bench_nothing"


class Nothing(DataSource):
    """The data source. Options: ``path`` of an Arrow file, and the number of ``partitions``; for reading only."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of the file."""
        with pa.memory_map(self.options["path"]) as file:
            return from_arrow_schema(pa.ipc.open_file(file).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the file."""
        return FileReader(self.options["path"], int(self.options["partitions"]))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return a writer that ignores its rows."""
        return CountingWriter()


class FileReader(DataSourceReader):
    """Yields the batches of a file that is mapped into memory.

    Args:
        path: an Arrow file.
        partitions: the number of partitions, among which the batches are divided.
    """

    def __init__(self, path: str, partitions: int) -> None:
        self._path = path
        self._partitions = partitions

    def partitions(self) -> Sequence[InputPartition]:
        """Return the numbers of the partitions."""
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield every batch of a partition."""
        with pa.memory_map(self._path) as file:
            batches = pa.ipc.open_file(file)
            for number in range(partition.value, batches.num_record_batches, self._partitions):
                yield batches.get_batch(number)


@dataclass
class Counted(WriterCommitMessage):
    """The number of rows of a task."""

    rows: int


class CountingWriter(DataSourceArrowWriter):
    """Takes all rows of a task and does nothing with them."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Count the rows."""
        return Counted(sum(batch.num_rows for batch in iterator))
