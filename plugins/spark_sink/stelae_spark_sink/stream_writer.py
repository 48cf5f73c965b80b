"""Writes a stream into a table, exactly once: ``df.writeStream.format("stelae")``.

Each batch of a query is an epoch, whose number is the batch id. Spark may run a batch again: after a failed task, after
a failed batch, or after the driver was killed between the writes and its own record of the batch. It then has the same
batch id and the same rows, in other partitions. A batch that is complete is not written again, and must have as many
rows as before. Spark repeats the last batch only, so an earlier one is of another run: of a copy of the checkpoint, or
of another query of the same name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from stelae.client import LaterEpoch
from stelae.spi.errors import CallerError, PluginError
from stelae.spi.write import SourceFence, checked_fence
from stelae_spark_sink.batch_rows import check_rows, record_rows
from stelae_spark_sink.job_end import complete_job
from stelae_spark_sink.job_sources import source_of_stream
from stelae_spark_sink.options import FAIL_ON_ROW_ERRORS, REJECTS_TABLE, SOURCE, TABLE, SourceOptions, write_timeout_s
from stelae_spark_sink.rejects_table import check_rejects_table
from stelae_spark_sink.repeated_keys import warn_of_repeated_keys
from stelae_spark_sink.table_access import contacts_of, table_of
from stelae_spark_sink.task_result import TaskResult, check_same_table, report, total_of
from stelae_spark_sink.task_writer import write_task
from stelae_spark_sink.write_checks import CREATE_TABLE, check_columns, created_with

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"
"""Local properties that Spark sets for the tasks of a stream. ``tests/spark`` checks that it does. A query that starts
again has another run."""

BEGUN_MAX = 1024
"""The most runs of queries that a process remembers. One that is forgotten begins its next batch, which is harmless."""


class FirstBatch(NamedTuple):
    """The epoch that this process began first in a run of a query."""

    epoch: int
    is_complete: bool  #: Whether the batch was complete before.


_begun: dict[tuple[str, str], FirstBatch] = {}
"""The first batches by run and source, ordered by start time."""


class CheckpointBehind(CallerError, code="SPARK_CHECKPOINT_BEHIND"):
    """The batch id is older than the last batch that began, and the rows may differ. They are not written."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes one batch of a query. The driver makes it and sends it to each task.

    Args:
        options: the options of the source.
        given: the columns of the stream.

    Raises:
        SchemaMismatch: the table cannot store the rows.
        NoSuchTable, Unavailable: the table does not exist, or no master answered.
    """

    def __init__(self, options: SourceOptions, given: StructType) -> None:
        with created_with(CREATE_TABLE):
            table = table_of(options)  # A stream plans a batch whenever one is due.
        check_columns(table, options, given)
        self._options = options.found_by(contacts_of(options))
        check_rejects_table(options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of a task.

        Only the first batch of a run can be complete: Spark begins a batch when it has recorded the one before. So each
        process asks once for each run. If a later batch is over, another query has the same name: the task fails.

        Raises:
            CheckpointBehind: the batch is the first one, and a later one has begun.
            EpochOver: the batch is not the first one, and it is complete, or a later one has begun.
            TaskFailed, SchemaMismatch: as ``write_task`` does.
        """
        fence = self._fence()
        run = (task_property(RUN_ID) or "", fence.source)
        begun = _begun.get(run) if run[0] else None
        if begun == FirstBatch(fence.epoch, is_complete=True):
            return TaskResult(fence, skipped=True, rows=sum(batch.num_rows for batch in iterator))
        try:
            result = write_task(self._options, fence, iterator, begin=begun is None)
        except LaterEpoch as error:
            raise _behind(self._options[TABLE], fence) from error
        if begun is None:
            _begun[run] = FirstBatch(fence.epoch, result.skipped)
            while len(_begun) > BEGUN_MAX:
                del _begun[next(iter(_begun))]
        return result

    def _fence(self) -> SourceFence:
        """Return the source and epoch of the batch that this task belongs to."""
        query, batch = task_property(QUERY_ID), task_property(BATCH_ID)
        if query is None or batch is None:
            raise PluginError(f"Spark did not tell the task its query and batch ({QUERY_ID}, {BATCH_ID})")
        name = self._options.get(SOURCE)
        return checked_fence(f"spark/{query}" if name is None else source_of_stream(name, self._options), int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Complete a batch, once all tasks have written.

        Raises:
            RowsNotWritten: rows were not written, and ``failOnRowErrors`` is set. All others are written.
            BatchDiffers: the batch was complete before, and had another number of rows. Nothing is written.
            TableReplaced: the table was dropped and created anew during the batch. Spark runs it again.
        """
        total = total_of(messages)
        if total is None:
            return
        options = self._options
        table, timeout_s = table_of(options), write_timeout_s(options)
        check_same_table(table.name, {table.table_id, *total.table_ids})
        if total.skipped:
            check_rows(table, total, timeout_s)
        warn_of_repeated_keys(table, total.repeated)
        report(table.name, total, fail=options[FAIL_ON_ROW_ERRORS], rejects=options.get(REJECTS_TABLE))
        if not total.skipped:
            record_rows(table, total, timeout_s)
        complete_job(options, table, total)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """End a batch without an effect of its own: Spark runs it again, and then it is completed."""


def task_property(name: str) -> str | None:
    """Return a local property of the task that runs in this process; ``None``: it has no such property."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _behind(table: str, fence: SourceFence) -> CheckpointBehind:
    source, batch = fence
    fact = f"batch {batch} of source {source!r} is not written: a later one has begun in table {table!r}"
    why = "the checkpoint is older than the table, or another query has the same name"
    return CheckpointBehind(
        f"{fact}, and Spark repeats the last batch only. The rows can be others: {why}. Continue with the checkpoint "
        "of the last run, or set the option 'source' to a new name, with which all batches are written"
    )
