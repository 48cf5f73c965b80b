"""Writes a stream into a table, exactly once: ``df.writeStream.format("stelae")``.

Each batch of a query is an epoch, whose number is the batch id. Spark may run a batch again: after a failed task, after
a failed batch, or after the driver was killed between the writes and its own record of the batch. It then has the same
batch id and the same rows, in other partitions. A batch that is complete is not written again."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from stelae.spi.errors import PluginError
from stelae.spi.write import SourceFence, checked_fence
from stelae_spark_sink.job_end import complete_job
from stelae_spark_sink.options import FAIL_ON_ROW_ERRORS, REJECTS_TABLE, SOURCE, SourceOptions
from stelae_spark_sink.rejects_table import check_rejects_table
from stelae_spark_sink.table_access import table_of
from stelae_spark_sink.task_result import check_same_table, report, total_of
from stelae_spark_sink.task_writer import write_task
from stelae_spark_sink.write_checks import check_columns

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Local properties that Spark sets for the tasks of a stream. ``tests/spark`` checks that it does."""

BEGUN_MAX = 1024
"""The most runs of queries that a process remembers. One that is forgotten begins its next batch, which is harmless."""

_begun: dict[tuple[str, str], None] = {}
"""The runs of queries, with their sources, of which this process has begun an epoch, in the order of their begin."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of one run of a query. The driver makes it and sends it to each task.

    Args:
        options: the options of the source.
        given: the columns of the stream.

    Raises:
        SchemaMismatch: the table cannot store the rows.
        NoSuchTable, Unavailable: the table does not exist, or no master answered.
    """

    def __init__(self, options: SourceOptions, given: StructType) -> None:
        self._options = options
        self._run = uuid.uuid4().hex
        check_columns(table_of(options, planning=True), options, given)
        check_rejects_table(options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of a task.

        Only the first batch of a run can be complete: Spark begins a batch when it has recorded the one before. So each
        process asks once for each run."""
        fence = self._fence()
        run = (self._run, fence.source)
        result = write_task(self._options, fence, iterator, begin=run not in _begun)
        if not result.skipped:
            _begun[run] = None
            while len(_begun) > BEGUN_MAX:
                del _begun[next(iter(_begun))]
        return result

    def _fence(self) -> SourceFence:
        """Return the source and epoch of the batch that this task belongs to."""
        context = TaskContext.get()
        query, batch = (None if context is None else context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID))
        if query is None or batch is None:
            raise PluginError(f"Spark did not tell the task its query and batch ({QUERY_ID}, {BATCH_ID})")
        return checked_fence(self._options.get(SOURCE) or f"spark/{query}", int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Complete a batch, once all tasks have written.

        Raises:
            RowsNotWritten: rows were not written, and ``failOnRowErrors`` is set. All others are written.
            TableReplaced: the table was dropped and created anew during the batch. Spark runs it again.
        """
        total = total_of(messages)
        if total is None:
            return
        options = self._options
        table = table_of(options)
        check_same_table(table.name, {table.table_id, *total.table_ids})
        report(table.name, total, fail=options[FAIL_ON_ROW_ERRORS], rejects=options.get(REJECTS_TABLE))
        complete_job(options, table, total)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """End a batch without an effect of its own: Spark runs it again, and then it is completed."""
