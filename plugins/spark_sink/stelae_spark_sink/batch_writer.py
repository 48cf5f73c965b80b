"""Writes a DataFrame into a table: ``df.write.format("stelae")``."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from stelae.client import Table
from stelae.spi.errors import StelaeError
from stelae.spi.write import SourceFence, checked_fence
from stelae_spark_sink.job_end import complete_job
from stelae_spark_sink.job_sources import source_of_job
from stelae_spark_sink.options import (
    EPOCH,
    FAIL_ON_ROW_ERRORS,
    REJECTS_TABLE,
    REPLACE_WHERE,
    SOURCE,
    TIMEOUT_S,
    BadOption,
    SourceOptions,
    write_timeout_s,
)
from stelae_spark_sink.overwrite import check_overwrite, old_rows_of, remove_rows_since, replaced_rows, time_before
from stelae_spark_sink.refused_keys import REFUSED_KEYS_MAX
from stelae_spark_sink.rejects_table import check_rejects_table, complete_rejects
from stelae_spark_sink.repeated_keys import warn_of_repeated_keys
from stelae_spark_sink.table_access import contacts_of, table_of
from stelae_spark_sink.task_result import RowsNotWritten, TaskResult, check_same_table, report, total_of
from stelae_spark_sink.task_writer import write_task
from stelae_spark_sink.write_checks import CREATE_TABLE, check_columns, created_with

END_TASKS_S = 30.0
"""How long ending the tasks of a failed job is tried, in seconds. The cluster may be the reason why it has failed."""


class BatchWriter(DataSourceArrowWriter):
    """Writes one DataFrame. The driver makes it and sends it to each task.

    All tasks of the job, and all their attempts, write one epoch. When the job is committed, the epoch is completed, so
    that an attempt that is still alive changes nothing any more. The epoch of a job without a source is completed
    when it fails, too.

    Args:
        options: the options of the source.
        given: the columns of the DataFrame.
        overwrite: remove the rows that the table had before and that are not among the new ones; with the option
            ``replaceWhere``, only those for which its filters hold.

    Raises:
        BadOption: options exclude each other.
        SchemaMismatch: the table cannot store the rows.
        NoSuchTable, Unavailable: the table does not exist, or no master answered.
    """

    def __init__(self, options: SourceOptions, given: StructType, *, overwrite: bool) -> None:
        self._fence = _fence_of(options, overwrite=overwrite)
        with created_with(CREATE_TABLE):
            table = table_of(options, planning=True)
        self._table_id = table.table_id
        self._options = options.found_by(contacts_of(options))
        check_columns(table, options, given)
        check_rejects_table(options)
        self._overwritten_at: int | None = None
        if overwrite:
            check_overwrite(table, options, given)
            self._overwritten_at = time_before(table, options[TIMEOUT_S])
        elif options.get(REPLACE_WHERE) is not None:
            raise BadOption(
                f"option {REPLACE_WHERE.name!r} applies to overwrite: set mode('overwrite'), or leave it out"
            )
        self._is_complete = False
        if options.get(SOURCE) is not None:
            self._is_complete = not table.epoch(*self._fence).begin(timeout_s=write_timeout_s(options))

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of a task."""
        if self._is_complete:
            for _ in iterator:
                pass
            return TaskResult(self._fence, skipped=True)
        keys_max = 0 if self._overwritten_at is None else REFUSED_KEYS_MAX
        return write_task(self._options, self._fence, iterator, keys_max=keys_max)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Finish the job, once all tasks have written.

        Raises:
            RowsNotWritten: rows were not written, and ``failOnRowErrors`` is set, or an overwrite cannot remove old
                rows without losing some. All other rows are written. The epoch is not complete.
            TableReplaced: the table was dropped and created anew meanwhile. No row of the new one is deleted.
        """
        options, old_rows = self._options, None
        fail = options[FAIL_ON_ROW_ERRORS]
        total = total_of(messages) or TaskResult(self._fence)
        table = table_of(options)
        check_same_table(table.name, {self._table_id, table.table_id, *total.table_ids})
        if self._overwritten_at is not None and not total.skipped:
            old_rows = old_rows_of(total, fail=fail)
            if old_rows is None or old_rows.removed:
                self._remove_old_rows(table, total, self._overwritten_at)
        warn_of_repeated_keys(table, total.repeated)
        try:
            report(table.name, total, fail=fail, rejects=options.get(REJECTS_TABLE), old_rows=old_rows)
        except RowsNotWritten:
            self._end_tasks()
            raise
        complete_job(options, table, total, ends=self._is_single)

    def _remove_old_rows(self, table: Table, total: TaskResult, since: int) -> None:
        options, epoch = self._options, table.epoch(*self._fence)
        where = replaced_rows(table, options)
        remove_rows_since(table, where, epoch, since, write_timeout_s(options), total.refused)
        total.tablets.update(epoch.tablets)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """End a job that has failed: rows that are written stay, and a repeated job writes the rest.

        Tasks that are still alive change nothing any more, if the tablets can be reached, unless the job has a source:
        a repeated job has the same epoch then, and its own tasks must be able to write."""
        self._end_tasks()

    @property
    def _is_single(self) -> bool:
        """Whether the job has a source of its own, which ends with the job."""
        return self._options.get(SOURCE) is None

    def _end_tasks(self) -> None:
        """Complete the epoch of a job without a source on all tablets, as far as they can be reached."""
        if not self._is_single:
            return
        timeout_s = min(write_timeout_s(self._options), END_TASKS_S)
        try:
            table_of(self._options, planning=True).epoch(*self._fence).complete(ends=True, timeout_s=timeout_s)
            complete_rejects(self._options, self._fence, None, ends=True)
        except StelaeError as error:
            print(f"stelae: a task of the job that is still alive may write: {error}", file=sys.stderr)


def _fence_of(options: SourceOptions, *, overwrite: bool) -> SourceFence:
    """Return the source and epoch of a job: those of its options, or new ones."""
    source, epoch = options.get(SOURCE), options.get(EPOCH)
    if (source is None) != (epoch is None):
        missing = SOURCE if source is None else EPOCH
        raise BadOption(f"the options 'source' and 'epoch' belong together; set {missing.name!r}, too")
    if source is None:
        return checked_fence(f"spark/{uuid.uuid4().hex}", 0)
    return checked_fence(source_of_job(source, options, overwrite=overwrite), epoch or 0)
