"""The jobs of the demo in Spark: a stream of files into a table, and queries of the table."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stelae.spi.errors import StelaeError
from stelae_spark_sink.demo.source_files import SCHEMA, SUMS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.05
_CSV = {"header": "true", "escape": '"', "nullValue": "\\N"}
"""Options for the files. With a text for ``nullValue``, an empty cell is null, and a quoted one is an empty text."""


class StreamEnded(StelaeError, code="STREAM_ENDED"):
    """The stream of the demo failed, or ended before the demo expected it."""


class CharacterStream:
    """A streaming query that writes the files of a folder into a table, one file in a batch, and then ends.

    Args:
        session: the session of Spark.
        files: folder with the CSV files.
        masters, table: the table, which exists.
        checkpoint: folder in which Spark records the progress of the query.
    """

    def __init__(self, session: SparkSession, files: Path, masters: str, table: str, checkpoint: Path) -> None:
        stream = session.readStream.schema(SCHEMA).options(**_CSV).option("maxFilesPerTrigger", 1).csv(str(files))
        self._query: StreamingQuery = (
            stream.writeStream.format("stelae")
            .option("masters", masters)
            .option("table", table)
            .option("operation", "insert")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    @property
    def batches(self) -> int:
        """The number of batches that are written."""
        return sum(progress.numInputRows > 0 for progress in self._query.recentProgress)

    @property
    def rows(self) -> int:
        """The number of rows that are written."""
        return sum(int(progress.numInputRows) for progress in self._query.recentProgress)

    def wait_for(self, batches: int) -> None:
        """Wait until a number of batches are written.

        Raises:
            StreamEnded: the query has failed, or has written fewer batches and ended.
        """
        while self.batches < batches:
            if not self._query.isActive and self.batches < batches:
                raise StreamEnded(f"the stream ended after {self.batches} batches: {self._query.exception()}")
            time.sleep(POLL_S)

    def finish(self) -> None:
        """Wait until all files are written; ``StreamEnded``: the query has failed."""
        from pyspark.errors import PySparkException

        try:
            self._query.awaitTermination()
        except PySparkException as error:
            raise StreamEnded(f"the stream failed after {self.batches} batches: {error}") from error


def files_as_frame(session: SparkSession, files: Path) -> DataFrame:
    """Return the rows of the CSV files."""
    return session.read.schema(SCHEMA).options(**_CSV).csv(str(files))


def rows_of(frame: DataFrame) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a frame. A partition is read when its first row is asked for, and not before."""
    return (tuple(row) for row in frame.toLocalIterator())


def sums_of_table(frame: DataFrame) -> Mapping[str, int]:
    """Return the values of ``SUMS``, computed by Spark."""
    (found,) = frame.selectExpr(*SUMS.values()).collect()
    return dict(zip(SUMS, map(int, found), strict=True))
