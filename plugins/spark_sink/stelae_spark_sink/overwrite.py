"""Removes the rows of a table that an overwriting job has not written again.

The new rows are written first. So a reader sees old and new rows for a while, never an empty table, and a job that
fails in between has removed nothing: a repeated job completes it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from pyspark.sql.types import StructType

from stelae.client import Epoch, ScanToken, Table
from stelae.client.filters import Filter, predicates
from stelae.client.tokens import TokenPart
from stelae.spi.ids import TabletId
from stelae.spi.write import OpKind
from stelae_spark_sink.json_filters import with_values
from stelae_spark_sink.options import IGNORE_NULL, OPERATION, REPLACE_WHERE, BadOption, SourceOptions
from stelae_spark_sink.refused_keys import REFUSED_KEYS_MAX, without_refused
from stelae_spark_sink.task_result import OldRows, TaskResult

DELETE_ROWS_MAX = 1 << 18
"""The most rows that are deleted after one look at the changes of a tablet."""

TABLETS_AT_ONCE = 8
"""Tablets from which rows are removed at the same time. The driver holds the keys of that many tablets in memory, and
mostly waits for their answers."""


def check_overwrite(table: Table, options: SourceOptions, given: StructType) -> None:
    """Check that a DataFrame can replace the rows of a table.

    Raises:
        BadOption: it lacks a column, whose old values would stay, or keys cannot be compared exactly; or an option does
            not apply.
        BadFilter: a filter of ``replaceWhere`` does not fit the table.
    """
    if options[OPERATION] is not OpKind.UPSERT:
        raise BadOption(f"option {OPERATION.name!r} does not apply to overwrite, which upserts: leave it out")
    if options[IGNORE_NULL]:
        raise BadOption(
            f"option {IGNORE_NULL.name!r} does not apply to overwrite, which replaces whole rows: leave it out"
        )
    replaced_rows(table, options)
    lacking = [name for name in table.columns if name not in given.fieldNames()]
    if lacking:
        raise BadOption(f"overwrite replaces whole rows, and the DataFrame has no column {', '.join(lacking)}; add it")
    floats = [column.name for column in table.schema.key_layout.columns if column.type in ("float", "double")]
    if floats:
        raise BadOption(
            f"overwrite compares keys, and the key column {floats[0]!r} is a floating-point number; delete the rows "
            "with the operation 'delete' instead, then append"
        )


def replaced_rows(table: Table, options: SourceOptions) -> list[Filter]:
    """Return the filters of the option ``replaceWhere`` for a table; empty: all rows are replaced.

    Raises:
        BadFilter: a filter does not fit the table.
    """
    where = with_values(table.schema, options.get(REPLACE_WHERE) or ())
    predicates(table.schema, where)
    return where


def time_before(table: Table, timeout_s: float) -> int:
    """Return a hybrid timestamp that is above all acknowledged writes to a table, and below all later ones.

    It is the time of the cluster, whatever the clock of this machine says. A tablet that has been read at a time gives
    no later write that time or a lower one, so each tablet is read at it.

    Raises:
        Unavailable: a tablet did not answer in time.
    """
    at = table.latest(timeout_s=timeout_s)
    table.diff(at, at, [*table.key], timeout_s=timeout_s).count()
    return at


def old_rows_of(total: TaskResult, *, fail: bool) -> OldRows | None:
    """Return what an overwriting job does with the old rows if rows of it were not written; ``None``: all were.

    The old row of a refused row stays, because nothing replaces it. So old rows are removed only if the keys of all
    refused rows are known, and not if nothing at all was written: then the DataFrame or the filters are wrong.

    Args:
        total: the results of all tasks.
        fail: whether rows that were not written fail the job.
    """
    if not total.failed:
        return None
    if fail:
        return OldRows(False, "no old row was removed")
    again = "correct the rows, and run the job again, with the same epoch if it has one"
    if total.failed == total.rows:
        return OldRows(False, f"no old row was removed, because no new one is written: {again}")
    if total.refused_keys < total.failed:
        known = f"more than {REFUSED_KEYS_MAX} rows of one task were not written"
        return OldRows(False, f"no old row was removed, because {known}: {again}")
    return OldRows(True, "old rows with the keys of these rows stay; the others were removed")


def remove_rows_since(
    table: Table, where: Sequence[Filter], epoch: Epoch, since: int, timeout_s: float, refused: Sequence[Any] = ()
) -> int:
    """Delete the rows that a table had at ``since`` and that were not written since; return their number.

    The changes of a tablet are read again directly before its rows are deleted, so that rows that others write
    meanwhile stay. A write between the last look at the changes and the delete is lost; see the page *Spark*.

    Args:
        table: the table.
        where: only rows for which these filters held at ``since`` are deleted.
        epoch: the epoch of the job.
        since: hybrid timestamp of the time before the job, of :func:`time_before`.
        timeout_s: how long a page or a write is retried.
        refused: ``pyarrow.Table`` objects with keys of rows that stay.
    """
    key, stay = [*table.key], _joined(refused)

    def remove(tablet: TabletId, tokens: Sequence[ScanToken]) -> int:
        changes = _Changes(table, tablet, since, timeout_s)
        gone, removed = changes.without(_keys(table, tokens, key, timeout_s)), 0
        if stay is not None:
            gone = without_refused(gone, stay)
        while gone.num_rows:
            gone = changes.without(gone)  # Reading all changes took a while, and so did a delete.
            removed += epoch.delete(gone.slice(0, DELETE_ROWS_MAX), timeout_s=timeout_s).written
            gone = gone.slice(DELETE_ROWS_MAX)
        return removed

    tablets = _by_tablet(table.scan(key, where, at=since, timeout_s=timeout_s).tokens())
    with ThreadPoolExecutor(TABLETS_AT_ONCE, "stelae-overwrite") as pool:
        return sum(pool.map(remove, tablets, tablets.values()))


def _joined(tables: Sequence[Any]) -> Any:
    import pyarrow as pa

    return pa.concat_tables(tables) if tables else None


class _Changes:
    """Follows the changes of one tablet."""

    def __init__(self, table: Table, tablet: TabletId, since: int, timeout_s: float) -> None:
        self._table = table
        self._tablet = tablet
        self._until = since
        self._timeout_s = timeout_s
        token = table.diff(since, since, [*table.key], timeout_s=timeout_s).token()
        assert token is not None, "the diff has not begun"
        self._token = token

    def without(self, keys: Any) -> Any:
        """Return the keys of a ``pyarrow.Table`` without those of the rows that were changed since the last call."""
        if not keys.num_rows:
            return keys
        table, since = self._table, self._until
        self._until = max(since, table.latest(tablets=[self._tablet], timeout_s=self._timeout_s))
        parts = (TokenPart(self._tablet, self._until),)
        token = msgspec.structs.replace(self._token, parts=parts, since=since, at=self._until)
        changed = _keys(table, [token], table.key, self._timeout_s)
        return keys.join(changed, keys=[*table.key], join_type="left anti") if changed.num_rows else keys


def _by_tablet(tokens: Sequence[ScanToken]) -> dict[TabletId, list[ScanToken]]:
    found: dict[TabletId, list[ScanToken]] = {}
    for token in tokens:
        for part in token.parts or ():
            found.setdefault(part.tablet_id, []).append(token)
    return found


def _keys(table: Table, tokens: Sequence[ScanToken], key: Sequence[str], timeout_s: float) -> Any:
    import pyarrow as pa

    return pa.concat_tables([table.open(token, timeout_s=timeout_s).to_arrow().select(key) for token in tokens])
