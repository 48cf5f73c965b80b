"""Writes the rows of one task, as a part of an epoch that all tasks of the job share.

Spark may run a task twice, one after the other or at the same time, and may divide the rows of a batch in another way
when it runs it again. So the identity of a write is the epoch, not the task: a repeated write has no further effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stelae.client import WriteResult
from stelae.client.failures import UNKNOWN_OUTCOME
from stelae.client.writer_core import TIMEOUT_S_MAX
from stelae.spi.errors import CallerError, StelaeError, Unavailable
from stelae.spi.write import RowCode, SourceFence, StaleEpoch
from stelae_spark_sink.options import OPERATION, TIMEOUT_S, SourceOptions
from stelae_spark_sink.table_access import table_of
from stelae_spark_sink.task_result import TaskResult

WRITE_ROWS = 65_536
"""Rows that are handed to the client at once. It keeps several requests of them in flight."""

WRITE_BYTES = 16 << 20
"""Bytes of rows that are handed to the client at once, at least one batch of Spark."""

_ROW_CODES = {code.name for code in RowCode} | {"TOO_LARGE", "NO_PARTITION"}
"""Codes of failures that a row has by itself. A task that is repeated meets them again."""


class TaskFailed(Unavailable, code="SPARK_TASK_FAILED"):
    """Rows of a task could not be written now. Spark repeats the task."""


class EpochOver(CallerError, code="SPARK_EPOCH_OVER"):
    """A later epoch of the source began while a task wrote. Its other rows are not written."""


def write_task(
    options: SourceOptions, fence: SourceFence, batches: Iterable[Any], *, begin: bool = False
) -> TaskResult:
    """Write the batches of a task.

    Args:
        options: of the source.
        fence: source and epoch of the job.
        batches: ``pyarrow.RecordBatch`` objects with the columns of the job.
        begin: begin the epoch first, to learn whether it is complete.

    Raises:
        TaskFailed: rows could not be written now. A repeated task writes them.
        EpochOver: a later epoch has begun since. This one was not complete when it began.
    """
    timeout_s = min(options[TIMEOUT_S], TIMEOUT_S_MAX)
    epoch = table_of(options).epoch(*fence)
    found = TaskResult(fence)
    if begin and not epoch.begin(timeout_s=timeout_s):
        found.skipped = True
    for rows in _coalesced(batches):
        if found.skipped:
            continue  # Spark expects that a task takes all of its rows.
        result = epoch.write(options[OPERATION], rows, errors="return", timeout_s=timeout_s)
        if StaleEpoch.code in result.counts:
            raise EpochOver(f"{result.failures[0]}; a later run of the source writes the table, and this one cannot")
        if result.counts.keys() - _ROW_CODES:
            raise _not_now(result)
        found.add(result)
    found.tablets.update(epoch.tablets)
    return found


def _coalesced(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield batches of Spark, which are small, as tables of ``WRITE_ROWS`` rows or ``WRITE_BYTES`` bytes."""
    import pyarrow as pa

    waiting: list[Any] = []
    rows = size_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
        if rows >= WRITE_ROWS or size_bytes >= WRITE_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size_bytes = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _not_now(result: WriteResult) -> StelaeError:
    count = sum(count for code, count in result.counts.items() if code not in _ROW_CODES)
    known = "may be written or not" if UNKNOWN_OUTCOME in result.counts else "are not written"
    first = next((failure for failure in result.failures if failure.code not in _ROW_CODES), result.failures[0])
    return TaskFailed(f"{count} of {result.rows} rows of a batch {known}: {first}; the task has to be repeated")
