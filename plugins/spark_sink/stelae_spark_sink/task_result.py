"""What a task of a writing job returns to the driver, and what the driver makes of it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from stelae.client import RowFailure, WriteResult
from stelae.spi.errors import CallerError
from stelae.spi.ids import TabletId
from stelae.spi.write import SourceFence

SAMPLES_MAX = 20
"""The most rows that were not written of which a task returns the reason."""

SAMPLE_LENGTH_MAX = 400
"""The most characters that are shown of a row that was not written."""


class RowsNotWritten(CallerError, code="SPARK_ROWS_NOT_WRITTEN"):
    """Rows of a job were not written. All other rows are written."""


class TableReplaced(CallerError, code="SPARK_TABLE_REPLACED"):
    """A table was dropped and created anew under its name while a job wrote it. Rows of the job are in the old one."""


class OldRows(NamedTuple):
    """What an overwriting job of which rows were not written does with the rows that the table had before."""

    removed: bool  #: Whether old rows are removed.
    text: str  #: For people.


@dataclass
class TaskResult(WriterCommitMessage):
    """What a task has written, or what all tasks of a job have."""

    fence: SourceFence
    skipped: bool = False  #: The epoch was complete before, so that nothing was written now.
    rows: int = 0  #: Rows that the tasks took, whether or not they were written.
    failed: int = 0
    repeated: int = 0  #: Rows that have the key of another row of their batch, as far as it matters.
    size_bytes: int = 0  #: Bytes of the rows, as Arrow values.
    retries: int = 0  #: How often the client sent a request again.
    samples: list[str] = field(default_factory=list)  #: Reasons of the first rows that were not written.
    table_ids: set[str] = field(default_factory=set)  #: Ids of the tables that had the name when tasks wrote.
    tablets: set[TabletId] = field(default_factory=set)  #: The tablets to which rows were sent.
    rejects_tablets: set[TabletId] = field(default_factory=set)  #: The tablets to which rejects were written.
    refused: list[Any] = field(default_factory=list)  #: ``pyarrow.Table`` objects: keys of rows that were not written.

    @property
    def refused_keys(self) -> int:
        """Number of the keys in ``refused``. It is lower than ``failed`` if some are not known."""
        return sum(keys.num_rows for keys in self.refused)

    def add(self, result: WriteResult) -> None:
        """Add the result of one batch of rows."""
        self.rows += result.rows
        self.failed += result.failed
        self.samples += [_sample(failure) for failure in result.failures[: SAMPLES_MAX - len(self.samples)]]


def _sample(failure: RowFailure) -> str:
    """Return a failure without the position of its row, which means nothing outside of its task."""
    values = ", ".join(f"{name}={value!r}" for name, value in (failure.values or {}).items())
    return f"{failure.code}: {failure.reason}: {values}"[:SAMPLE_LENGTH_MAX]


def total_of(results: Iterable[WriterCommitMessage | None]) -> TaskResult | None:
    """Return the results of the tasks of a job as one; ``None``: no task wrote."""
    tasks = [one for one in results if isinstance(one, TaskResult)]
    if not tasks:
        return None
    total = TaskResult(tasks[0].fence)
    for task in tasks:
        total.skipped |= task.skipped
        total.rows += task.rows
        total.failed += task.failed
        total.repeated += task.repeated
        total.size_bytes += task.size_bytes
        total.retries += task.retries
        total.samples += task.samples[: SAMPLES_MAX - len(total.samples)]
        total.table_ids |= task.table_ids
        total.tablets |= task.tablets
        total.rejects_tablets |= task.rejects_tablets
        total.refused += task.refused
    return total


def check_same_table(name: str, table_ids: Iterable[str]) -> None:
    """Check that the name of a table was that of one table during a whole job.

    Args:
        name: name of the table.
        table_ids: its ids when the tasks wrote, and when the job was committed.

    Raises:
        TableReplaced: there are several.
    """
    if len({*table_ids}) > 1:
        fact = f"table {name!r} was dropped and created anew while a job wrote it, so rows of the job are missing in it"
        raise TableReplaced(f"{fact}; start the job again")


def report(
    table: str, total: TaskResult, *, fail: bool, rejects: str | None = None, old_rows: OldRows | None = None
) -> None:
    """Tell the log of the driver what a job has written.

    Args:
        table: name of the table.
        total: the results of all tasks.
        fail: whether rows that were not written are an error.
        rejects: name of the table that has the rows that were not written.
        old_rows: what an overwriting job did with the old rows, because rows were not written.

    Raises:
        RowsNotWritten: rows were not written, and ``fail`` is set or old rows were not removed.
    """
    if total.skipped:
        print(f"stelae: {_epoch_of(total.fence)} is complete in table {table!r}; nothing was written", file=sys.stderr)
        return
    metrics = f"{total.size_bytes} bytes, {total.retries} retries"
    written = f"{total.rows - total.failed} of {total.rows} rows are written to table {table!r} ({metrics})"
    if not total.failed:
        print(f"stelae: {written}", file=sys.stderr)
        return
    where = f", see table {rejects!r}" if rejects else ""
    problem = "\n  ".join([f"{written}; {total.failed} are not{where}:", *_shown(total.samples, total.failed)])
    if old_rows is not None:
        problem = f"{problem}\n{old_rows.text}"
    if fail:
        raise RowsNotWritten(f"{problem}\nset the option 'failOnRowErrors' to false to go on without them")
    if old_rows is not None and not old_rows.removed:
        raise RowsNotWritten(problem)
    print(f"stelae: {problem}", file=sys.stderr)


def _shown(samples: Sequence[str], failed: int) -> list[str]:
    return [*samples, *([f"and {failed - len(samples)} more"] if failed > len(samples) else [])]


def _epoch_of(fence: SourceFence) -> str:
    return f"epoch {fence.epoch} of source {fence.source!r}"
