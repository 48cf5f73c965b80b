"""Writes the rows of one task, as a part of an epoch that all tasks of the job share.

Spark may run a task twice, one after the other or at the same time, and may divide the rows of a batch in another way
when it runs it again. So the identity of a write is the epoch, not the task. A repeated write has no further effect,
unless another client has written the row since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stelae.client import RowFailure, WriteResult
from stelae.client.failures import FAILURES_MAX, UNKNOWN_OUTCOME
from stelae.client.outside_rows import rows_outside
from stelae.client.row_input import KEY_ONLY
from stelae.spi.errors import CallerError, SchemaMismatch, StelaeError, Unavailable
from stelae.spi.write import RowCode, SourceFence, StaleEpoch
from stelae_spark_sink.null_patterns import DividedRows, divided
from stelae_spark_sink.options import IGNORE_NULL, OPERATION, SourceOptions, write_timeout_s
from stelae_spark_sink.overwrite import replaced_rows
from stelae_spark_sink.rejects_table import rejects_of
from stelae_spark_sink.repeated_keys import repeated_keys
from stelae_spark_sink.row_values import rows_of
from stelae_spark_sink.table_access import table_of
from stelae_spark_sink.task_result import TaskResult

WRITE_ROWS = 65_536
"""Rows that are handed to the client at once. It keeps several requests of them in flight."""

WRITE_BYTES = 16 << 20
"""Bytes of rows that are handed to the client at once, at least one batch of Spark."""

OUTSIDE = "OUTSIDE_REPLACE_WHERE"
"""Code of a row for which the filters of ``replaceWhere`` do not hold."""

OUTSIDE_REASON = "the filters of the option 'replaceWhere' do not hold for the row"

_ROW_CODES = {code.name for code in RowCode if code is not RowCode.OUTSIDE_PARTITION}
_ROW_CODES |= {"TOO_LARGE", "NO_PARTITION", OUTSIDE}
"""Codes of failures that a row has by itself. A task that is repeated meets them again. A row is outside of the
partition of its tablet because of this client's locations, which may be better by then."""


class TaskFailed(Unavailable, code="SPARK_TASK_FAILED"):
    """Rows of a task could not be written now. Spark repeats the task."""


class EpochOver(CallerError, code="SPARK_EPOCH_OVER"):
    """A later epoch of the source began while a task wrote. Its other rows are not written."""


def write_task(
    options: SourceOptions, fence: SourceFence, batches: Iterable[Any], *, begin: bool = False, keys_max: int = 0
) -> TaskResult:
    """Write the batches of a task.

    Args:
        options: of the source.
        fence: source and epoch of the job.
        batches: ``pyarrow.RecordBatch`` objects with the columns of the job.
        begin: begin the epoch first, to learn whether it is complete.
        keys_max: the most keys of rows that were not written, to return.

    Raises:
        TaskFailed: rows could not be written now. A repeated task writes them.
        EpochOver: a later epoch has begun since. This one was not complete when it began.
        SchemaMismatch: the table was altered and has a column of the rows no more.
    """
    writer = _TaskWriter(options, fence, keys_max)
    if begin and not writer.begin():
        writer.result.skipped = True
    for rows in _coalesced(batches):
        if writer.result.skipped:
            writer.result.rows += rows.num_rows  # Spark expects that a task takes all of its rows.
        else:
            writer.write(rows)
    return writer.finish()


class _TaskWriter:
    """Writes rows of one task, and collects the result."""

    def __init__(self, options: SourceOptions, fence: SourceFence, keys_max: int) -> None:
        self.result = TaskResult(fence)
        self._keys_max = keys_max
        self._kind = options[OPERATION]
        self._ignores_null = options[IGNORE_NULL]
        self._timeout_s = write_timeout_s(options)
        self._table = table_of(options)
        self.result.table_ids.add(self._table.table_id)
        self._retries_before = sum(self._table.retries.values())
        self._epoch = self._table.epoch(*fence)
        self._where = replaced_rows(self._table, options)
        self._rejects = rejects_of(options, fence)

    def begin(self) -> bool:
        """Begin the epoch, and return whether its rows have to be written."""
        return self._epoch.begin(timeout_s=self._timeout_s)

    def finish(self) -> TaskResult:
        """Return the result of the task."""
        self.result.tablets.update(self._epoch.tablets)
        self.result.retries = sum(self._table.retries.values()) - self._retries_before
        if self._rejects is not None:
            self.result.rejects_tablets.update(self._rejects.tablets)
        return self.result

    def write(self, rows: Any) -> None:
        """Write a ``pyarrow.Table``; raises as :func:`write_task` does."""
        self.result.size_bytes += rows.nbytes
        if self._where:
            rows = self._without_rows_outside(rows)
        if self._kind not in KEY_ONLY:  # Deletes of one key have one effect.
            self.result.repeated += repeated_keys(rows, self._table.schema)
        divided_rows = DividedRows([rows])
        if self._ignores_null:
            divided_rows = divided(rows, self._table.schema, self._kind)
        result = self._epoch.write(
            self._kind,
            divided_rows.parts,
            errors="return",
            timeout_s=self._timeout_s,
            failures_max=self._failures_max(rows),
        )
        if SchemaMismatch.code in result.counts:
            self._check_columns(rows)
        if result.counts.keys() - _ROW_CODES:
            raise _not_now(result)
        self._add(result, rows, divided_rows)

    def _check_columns(self, rows: Any) -> None:
        """Look the table up again, and check that it has the columns of the rows.

        Raises:
            SchemaMismatch: it does not. The rows of the batch are not written.
        """
        self._table.refresh(timeout_s=self._timeout_s)
        try:
            self._table.write(self._kind, rows.schema.empty_table())
        except CallerError as error:
            fact = f"table {self._table.name!r} was altered while a job wrote it: {error}"
            hint = "start the job again with the columns of the table; rows that are written stay"
            raise SchemaMismatch(f"{fact}; {hint}") from error

    def _without_rows_outside(self, rows: Any) -> Any:
        """Return the rows for which the filters of ``replaceWhere`` hold, and count the others as not written."""
        import pyarrow as pa

        outside = rows_outside(self._table.schema, self._where, rows)
        if not outside:
            return rows
        refused = rows.take(outside)
        shown = rows_of(refused.slice(0, self._failures_max(refused)))
        fixed = {"table": self._table.name, "kind": self._kind.name.lower(), "code": OUTSIDE, "reason": OUTSIDE_REASON}
        failures = tuple(RowFailure(row=number, values=values, **fixed) for number, values in enumerate(shown))
        count, counts = len(outside), {OUTSIDE: len(outside)}
        result = WriteResult(rows=count, failed=count, failures=failures, counts=counts, timestamp=0)
        self._add(result, refused, DividedRows([refused]))
        is_outside = {*outside}
        return rows.filter(pa.array([number not in is_outside for number in range(rows.num_rows)], pa.bool_()))

    def _failures_max(self, rows: Any) -> int:
        """Return how many rows that are not written have to be known: all of them, if they go into a table."""
        return max(FAILURES_MAX, self._keys_max) if self._rejects is None else int(rows.num_rows)

    def _add(self, result: WriteResult, rows: Any, divided_rows: DividedRows) -> None:
        self.result.add(result)
        if not result.failures:
            return
        positions = divided_rows.original([failure.row for failure in result.failures])
        if room := self._keys_max - self.result.refused_keys:
            self.result.refused.append(rows.take(positions[:room]).select(self._table.key))
        if self._rejects is None:
            return
        rejected = self._rejects.write(rows.take(positions), result.failures)
        if rejected.failed:
            raise _not_now(rejected)


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
    """Return the error of a task whose rows were not all written, for other reasons than the rows themselves."""
    if StaleEpoch.code in result.counts:
        first = next((failure for failure in result.failures if failure.code == StaleEpoch.code), result.failures[0])
        return EpochOver(f"{first}; a later run of the source writes the table, and this one cannot")
    count = sum(count for code, count in result.counts.items() if code not in _ROW_CODES)
    known = "may be written or not" if UNKNOWN_OUTCOME in result.counts else "are not written"
    first = next((failure for failure in result.failures if failure.code not in _ROW_CODES), result.failures[0])
    return TaskFailed(f"{count} of {result.rows} rows of a batch {known}: {first}; the task has to be repeated")
