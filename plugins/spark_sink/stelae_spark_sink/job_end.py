"""Completes the epoch of a job or of a batch of a stream, when all of its tasks have written."""

from __future__ import annotations

from stelae.client import Table
from stelae_spark_sink.options import SourceOptions, write_timeout_s
from stelae_spark_sink.rejects_table import complete_rejects
from stelae_spark_sink.task_result import TaskResult


def complete_job(options: SourceOptions, table: Table, total: TaskResult, *, ends: bool = False) -> None:
    """Complete an epoch in the table of the job, and then in its table of rejects.

    An epoch of which no row was sent to the table, because all were rejects, stays as it is: no tablet of the table
    would know that it is complete, and one that is repeated would be refused by the table of rejects for good. It
    writes the same rejects again.

    Args:
        options: of the source.
        table: the table of the job.
        total: the results of all tasks.
        ends: the source has no later epoch, and this one is not repeated.

    Raises:
        Unavailable: a tablet does not answer in time.
    """
    if not (total.skipped or total.tablets or ends):
        return
    tablets, rejects = (None, None) if total.skipped else (total.tablets, total.rejects_tablets)
    table.epoch(*total.fence).complete(tablets, ends=ends, timeout_s=write_timeout_s(options))
    complete_rejects(options, total.fence, rejects, ends=ends)
