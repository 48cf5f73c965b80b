"""Records how many rows a batch of a stream had, so that another batch with its number is noticed.

A batch that is complete is skipped when Spark runs it again. A query that continues from a copy of the checkpoint may
give the number of that batch to other rows, which would be lost. The number of rows is the same whenever Spark runs a
batch again. Sums of floating-point numbers are not, so values are not compared.

Tablets keep one number for each source. So a second source has the number of the batch and the number of its rows, as
one number. More rows give a lower one: it is refused, and changes nothing in the tablets."""

from __future__ import annotations

from stelae.client import LaterEpoch, Table
from stelae.spi.errors import CallerError
from stelae.spi.write import SourceFence, checked_fence
from stelae_spark_sink.job_sources import source_of
from stelae_spark_sink.task_result import TaskResult

ROWS_BITS = 32
"""Bits of the number of rows. Above them are 30 bits of the batch id: a batch each second for 34 years."""


class BatchDiffers(CallerError, code="SPARK_BATCH_DIFFERS"):
    """The batch is complete in the table, and had another number of rows when it was written. It is not written now."""


def record_rows(table: Table, total: TaskResult, timeout_s: float) -> None:
    """Make the number of rows of a batch known to its tablets. Call it before the batch is completed.

    Raises:
        Unavailable: a tablet does not answer in time.
    """
    table.epoch(*_rows_fence(total)).complete(total.tablets, timeout_s=timeout_s)


def check_rows(table: Table, total: TaskResult, timeout_s: float) -> None:
    """Check that a batch that was complete has as many rows now as it had when it was written.

    Raises:
        BatchDiffers: it has not.
        Unavailable: a tablet does not answer in time.
    """
    try:
        if not table.epoch(*_rows_fence(total)).begin(timeout_s=timeout_s):
            return
    except LaterEpoch:
        pass  # It had fewer rows.
    source, batch = total.fence
    fact = f"batch {batch} of source {source!r} is complete in table {table.name!r} with another number of rows"
    why = "the checkpoint is a copy of an older one, or the source does not give the same rows for the same offsets"
    raise BatchDiffers(
        f"{fact} than the {total.rows} that it has now, so it is another batch, and is not written: {why}. Continue "
        "with the checkpoint of the last run, or set the option 'source' to a new name, with which all batches are "
        "written"
    )


def _rows_fence(total: TaskResult) -> SourceFence:
    rows_max = (1 << ROWS_BITS) - 1
    number = total.fence.epoch << ROWS_BITS | rows_max - min(total.rows, rows_max)
    return checked_fence(source_of(total.fence.source, "rows"), number)
