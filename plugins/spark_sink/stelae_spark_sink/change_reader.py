"""Reads the change feed of a table in Spark: a batch between two times, or a stream.

The offsets of a stream are positions of the feed (``stelae.client.feed_position``). Two positions always give the same
changes, so a batch that Spark runs again has the same rows, or fails if they are no longer kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from stelae.client import ChangeFeed, ChangesExpired, RangeDropped, ScanToken, Table, to_datetime
from stelae.client.times import At
from stelae.client.token_division import SizedToken, combined
from stelae.spi.errors import CallerError
from stelae_spark_sink.arrow_batches import SparkBatches
from stelae_spark_sink.asked_columns import check_columns
from stelae_spark_sink.feed_schema import ADDED, columns_to_read
from stelae_spark_sink.options import (
    ENDING_TIMESTAMP,
    FAIL_ON_DROPPED_RANGES,
    MAX_ROWS_PER_TRIGGER,
    STARTING_TIMESTAMP,
    TABLE,
    TARGET_PARTITION_BYTES,
    TIMEOUT_S,
    BadOption,
    SourceOptions,
)
from stelae_spark_sink.table_access import changes_of, contacts_of, table_of
from stelae_spark_sink.table_reader import TokenPartition


class FeedHistoryExpired(CallerError, code="SPARK_FEED_EXPIRED"):
    """Changes that a query has to read are no longer kept by the nodes."""

    def __init__(self, table: str, expired: ChangesExpired, next_step: str) -> None:
        floor = to_datetime(expired.floor).isoformat()
        super().__init__(
            f"the change feed of table {table!r} needs changes that are no longer kept: the oldest time from which it "
            f"can be read is {floor}. {next_step}; the setting maintenance.history_retention_s of the nodes says how "
            "long history is kept"
        )


class FeedRangeDropped(CallerError, code="SPARK_RANGE_DROPPED"):
    """Ranges that a query has read, or has to read, were dropped."""

    def __init__(self, dropped: RangeDropped, next_step: str) -> None:
        super().__init__(
            f"{dropped.fact}. {next_step}; or set {FAIL_ON_DROPPED_RANGES.name!r} to false to go on without the range, "
            "and delete its rows from the copy yourself"
        )


class _FeedTasks:
    """Plans feeds on the driver, and reads their tokens in tasks.

    Args:
        options: the options of the source.
        asked: the columns that Spark reads, in order, with their types.
        if_expired: what the user can do if the history is not kept any more.
        if_dropped: what the user can do if a range was dropped.

    Raises:
        SchemaMismatch: the feed has no such columns.
        BadOption: the option ``columns`` names others.
        NoSuchTable, Unavailable: the table does not exist, or no master answered.
    """

    def __init__(self, options: SourceOptions, asked: StructType, *, if_expired: str, if_dropped: str) -> None:
        table = table_of(options, planning=True)
        self.options = options
        self._if_expired = if_expired
        self._if_dropped = if_dropped
        self._asked = asked
        self._columns = columns_to_read(table.schema, asked, table.name)
        check_columns(options, table.schema, asked, ADDED)

    @property
    def table(self) -> Table:
        """The table, with its present tablets."""
        return table_of(self.options)

    def feed(self, since: At | str | None, until: At | str | None = None) -> ChangeFeed:
        """Return the feed between two times or positions."""
        options = self.options
        return self.table.changes(
            since,
            until,
            self._columns,
            fail_on_dropped_ranges=options[FAIL_ON_DROPPED_RANGES],
            timeout_s=options[TIMEOUT_S],
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the changes of a token as ``pyarrow.RecordBatch`` objects with the columns that Spark reads."""
        if not isinstance(partition, TokenPartition):
            return  # Spark makes one task without a partition when there are no partitions.
        batches = SparkBatches(self._asked)
        token = ScanToken.from_bytes(partition.token)
        with self.named_loss(token.table):
            for batch in changes_of(self.options.found_by(partition.contacts), token):
                yield batches.converted(batch.select(self._asked.names))

    def partitions(self, feed: ChangeFeed, *, divides: bool) -> Sequence[InputPartition]:
        """Return the partitions of a bounded feed.

        Args:
            feed: the feed.
            divides: divide large tablets. Otherwise no tablet is asked for its size, and all count as small ones.
        """
        target_bytes = self.options[TARGET_PARTITION_BYTES]
        with self.named_loss(self.options[TABLE]):
            tokens = feed.tokens(target_bytes=target_bytes if divides else None)
        if not divides:
            tokens = combined([SizedToken(token, 0) for token in tokens], target_bytes)
        contacts = contacts_of(self.options)
        return [TokenPartition(token.to_bytes(), contacts) for token in tokens]

    @contextmanager
    def named_loss(self, table: str) -> Iterator[None]:
        """Raise ``FeedHistoryExpired`` for ``ChangesExpired``, and ``FeedRangeDropped`` for ``RangeDropped``."""
        try:
            yield
        except ChangesExpired as error:
            raise FeedHistoryExpired(table, error, self._if_expired) from error
        except RangeDropped as error:
            raise FeedRangeDropped(error, self._if_dropped) from error


class ChangeReader(DataSourceReader):
    """Reads the changes between two times once. Raises as ``_FeedTasks`` does.

    Raises:
        BadOption: there is no ``startingTimestamp``.
    """

    def __init__(self, options: SourceOptions, asked: StructType) -> None:
        if STARTING_TIMESTAMP not in options:
            raise BadOption(
                "a batch of a change feed needs the option 'startingTimestamp'; leave out 'readChangeFeed' to read the "
                "rows of the table"
            )
        expired = "Set 'startingTimestamp' to a later time and accept the gap, or read the rows of the table"
        dropped = "Read the rows of the table"
        self._tasks = _FeedTasks(options, asked, if_expired=expired, if_dropped=dropped)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions of the tablets that have changes. Large tablets are divided.

        Raises:
            FeedHistoryExpired: the history since ``startingTimestamp`` is not kept any more.
            FeedRangeDropped: a range of the position in ``startingTimestamp`` was dropped.
        """
        options = self._tasks.options
        feed = self._tasks.feed(options.get(STARTING_TIMESTAMP), options.get(ENDING_TIMESTAMP))
        return self._tasks.partitions(feed, divides=True)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the changes of a partition as ``pyarrow.RecordBatch`` objects."""
        return self._tasks.read(partition)


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the changes of a table as a stream. Spark makes it once for each start of a query."""

    def __init__(self, options: SourceOptions, asked: StructType) -> None:
        whole = "Start a query with a new checkpoint: without 'startingTimestamp' it begins with all rows of the table"
        expired = f"{whole}; with a later 'startingTimestamp' the changes in between are missing"
        dropped = f"{whole}; let it write into an empty copy"
        self._tasks = _FeedTasks(options, asked, if_expired=expired, if_dropped=dropped)
        self._last: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the position of ``startingTimestamp``, or that before the first row of the table."""
        return _offset(self._tasks.feed(self._tasks.options.get(STARTING_TIMESTAMP)).position)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of ``maxRowsPerTrigger``."""
        rows_max = self._tasks.options.get(MAX_ROWS_PER_TRIGGER)
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note a time that is not before the last write: this run ends there."""
        self._last = self._tasks.feed(None).last_time()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the batch that begins at ``start``; it is ``start`` if nothing was written since.

        A batch is one round of the feed or a part of one, so it has each key once.

        Raises:
            FeedHistoryExpired: the history since ``start`` is not kept any more.
            FeedRangeDropped: a range that the query has read was dropped.
        """
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        with self._tasks.named_loss(self._tasks.options[TABLE]):
            return _offset(self._tasks.feed(json.dumps(start)).next_position(rows_max=rows_max, not_after=self._last))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the partitions of a batch: one for each tablet that has changes, or for several small ones.

        The rows of the table, with which a stream may begin, are divided further.

        Raises:
            FeedHistoryExpired: the history since ``start`` is not kept any more.
            FeedRangeDropped: a range that the batch reads was dropped.
        """
        if start == end:
            return []
        feed = self._tasks.feed(json.dumps(start), json.dumps(end))
        return self._tasks.partitions(feed, divides=start["since"] == 0)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the changes of a partition as ``pyarrow.RecordBatch`` objects."""
        return self._tasks.read(partition)


def _offset(position: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(position)
    return found
