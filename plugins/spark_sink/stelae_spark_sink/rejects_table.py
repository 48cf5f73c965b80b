"""Writes the rows that a job could not write into a table of rejects, with the reasons.

The table is a Stelae table, so its rows are durable before the job ends, and belong to the epoch of the job: a zombie
task changes nothing in it any more. A reject is identified by the job's table, source and epoch and by a hash of the
row. A repeated task writes the same rejects again, in whatever order it meets the rows, and each exists once."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from stelae.client import Epoch, RowFailure, Table
from stelae.client.failures import WriteResult
from stelae.spi.errors import SchemaMismatch, Unavailable
from stelae.spi.ids import TabletId
from stelae.spi.write import OpKind, RowCode, SourceFence, StaleEpoch
from stelae_spark_sink.job_sources import rejects_fence
from stelae_spark_sink.json_filters import plain_text
from stelae_spark_sink.options import OPERATION, REJECTS_TABLE, SOURCE, TABLE, SourceOptions, write_timeout_s
from stelae_spark_sink.row_values import rows_of
from stelae_spark_sink.table_access import table_of
from stelae_spark_sink.write_checks import CREATE_REJECTS_TABLE, created_with

KEY = ("table", "source", "epoch", "row_hash")
COLUMNS: Mapping[str, str] = {
    "table": "string",
    "source": "string",
    "epoch": "int64",
    "row_hash": "string",
    "operation": "string",
    "code": "string",
    "reason": "string",
    "row": "string",
}
"""The columns of a table of rejects. ``row`` has the row as JSON; it is null if it would be too long."""

ROW_BYTES_MAX = 256 << 10
"""The most bytes of a row as JSON. A batch of rejects must fit into operations, whatever its rows are."""

_HASH_BYTES = 16


def definition() -> list[dict[str, Any]]:
    """Return the columns of a table of rejects, as ``Client.create_table`` takes them."""
    return [{"name": name, "type": kind, "nullable": name == "row"} for name, kind in COLUMNS.items()]


def check_rejects_table(options: SourceOptions) -> None:
    """Check that the table of the option ``rejectsTable``, if it is given, can store rejects.

    Raises:
        SchemaMismatch: it has other columns or another key.
        NoSuchTable, Unavailable: the table does not exist, or no master answered.
    """
    name = options.get(REJECTS_TABLE)
    if name is None:
        return
    with created_with(CREATE_REJECTS_TABLE):
        table = table_of(options, name, planning=True)
    types = {column: kind for column, kind in table.columns.items() if column in COLUMNS}
    if types == COLUMNS and tuple(table.key) == KEY and _takes_these_columns(table):
        return
    expected = ", ".join(f"{column} {kind}" for column, kind in COLUMNS.items())
    fact = f"table {name!r} cannot store rejects: it needs the columns {expected}; key {', '.join(KEY)}"
    raise SchemaMismatch(f"{fact}; create one with {CREATE_REJECTS_TABLE}")


def _takes_these_columns(table: Table) -> bool:
    columns = table.schema.columns
    return not any(c.required and c.name not in COLUMNS for c in columns) and table.schema.by_name["row"].nullable


class RejectsWriter:
    """Writes rejects of one task. Made by :func:`rejects_of`."""

    def __init__(self, options: SourceOptions, fence: SourceFence, epoch: Epoch) -> None:
        source = options.get(SOURCE) or fence.source
        self._fixed = {"table": options[TABLE], "source": source, "epoch": fence.epoch}
        self._kind = options[OPERATION]
        self._epoch = epoch
        self._timeout_s = write_timeout_s(options)

    @property
    def tablets(self) -> Collection[TabletId]:
        """Ids of the tablets to which rejects were written."""
        return self._epoch.tablets

    def write(self, rows: Any, failures: Sequence[RowFailure]) -> WriteResult:
        """Store rejected rows, and return the result of that write.

        Args:
            rows: ``pyarrow.Table`` of these rows.
            failures: why each of them was not written, in the order of the rows.

        Raises:
            Unavailable: rejects could not be written now.
        """
        rejects = [self._reject(row, failure) for row, failure in zip(rows_of(rows), failures, strict=True)]
        result = self._upsert(rejects)
        refused = [failure for failure in result.failures if failure.code == RowCode.BAD_VALUE.name]
        if refused:
            shortened = self._upsert([_without_row(rejects[failure.row], failure.reason) for failure in refused])
            if len(refused) == result.failed:
                return self._checked(shortened)
        return self._checked(result)

    def _upsert(self, rejects: Sequence[Mapping[str, Any]]) -> WriteResult:
        timeout_s, count = self._timeout_s, len(rejects)
        return self._epoch.write(OpKind.UPSERT, rejects, errors="return", timeout_s=timeout_s, failures_max=count)

    @staticmethod
    def _checked(result: WriteResult) -> WriteResult:
        """Return a result. ``Unavailable``: rejects were not written, for other reasons than a later epoch."""
        if result.failed and StaleEpoch.code not in result.counts:
            fact = (
                f"{result.failed} of {result.rows} rejects could not be written to table {result.failures[0].table!r}"
            )
            raise Unavailable(f"{fact}: {result.failures[0]}; the task has to be repeated")
        return result

    def _reject(self, row: Mapping[str, Any], failure: RowFailure) -> dict[str, Any]:
        text = json.dumps(row, default=plain_text, ensure_ascii=False)
        operation = self._kind.name.lower()
        row_hash = blake2b(f"{operation} {text}".encode(), digest_size=_HASH_BYTES).hexdigest()
        reason = failure.reason
        size_bytes = len(text.encode())
        if size_bytes > ROW_BYTES_MAX:
            reason = f"{reason}; the row has {size_bytes} bytes as JSON, too many for this table"
        shown = text if size_bytes <= ROW_BYTES_MAX else None
        found = {"row_hash": row_hash, "operation": operation, "code": failure.code, "reason": reason, "row": shown}
        return {**self._fixed, **found}


def _without_row(reject: Mapping[str, Any], problem: str) -> dict[str, Any]:
    """Return a reject without its row, which the table does not take: the limit of its cells may be lower."""
    return {
        **reject,
        "row": None,
        "reason": f"{reject['reason']}; the table of rejects does not take the row: {problem}",
    }


def rejects_of(options: SourceOptions, fence: SourceFence) -> RejectsWriter | None:
    """Return a writer of rejects of a job; ``None``: the option ``rejectsTable`` is not given."""
    name = options.get(REJECTS_TABLE)
    return None if name is None else RejectsWriter(options, fence, _epoch(options, name, fence))


def _epoch(options: SourceOptions, name: str, fence: SourceFence) -> Epoch:
    return table_of(options, name).epoch(*rejects_fence(fence, options[TABLE]))


def complete_rejects(
    options: SourceOptions, fence: SourceFence, tablets: Collection[TabletId] | None, *, ends: bool = False
) -> None:
    """Complete the epoch of a job in its table of rejects, after it is complete in the table of the job.

    So the epoch is never over in the table of rejects while rows of it have to be written.

    Args:
        options: of the source.
        fence: source and epoch of the job.
        tablets: the tablets to which rejects were written; ``None``: all.
        ends: no later epoch of the source is written.
    """
    name = options.get(REJECTS_TABLE)
    if name is not None and (tablets is None or tablets):
        _epoch(options, name, fence).complete(tablets, ends=ends, timeout_s=write_timeout_s(options))
