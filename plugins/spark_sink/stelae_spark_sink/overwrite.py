"""Removes the rows of a table that an overwriting job has not written again.

The new rows are written first. So a reader sees old and new rows for a while, never an empty table, and a job that
fails in between has removed nothing: a repeated job completes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql.types import StructType

from stelae.client import Epoch, ScanToken, Table
from stelae.client.filters import Filter, predicates
from stelae.spi.write import OpKind
from stelae_spark_sink.json_filters import with_values
from stelae_spark_sink.options import IGNORE_NULL, OPERATION, REPLACE_WHERE, BadOption, SourceOptions


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


def remove_rows_since(
    table: Table, where: Sequence[Filter], epoch: Epoch, since: int, written_at: int, timeout_s: float
) -> int:
    """Delete the rows that a table had at ``since`` and that were not written since; return their number.

    Args:
        table: the table.
        where: only rows for which these filters held at ``since`` are deleted.
        epoch: the epoch of the job.
        since: hybrid timestamp of the time before the job.
        written_at: the highest hybrid timestamp of the writes of the job.
        timeout_s: how long a page or a write is retried.
    """
    key = [*table.key]
    until = max(table.now(), written_at, since)
    changed = _by_tablet(table.diff(since, until, key, timeout_s=timeout_s).tokens())
    removed = 0
    for tablet, tokens in _by_tablet(table.scan(key, where, at=since, timeout_s=timeout_s).tokens()).items():
        old = _keys(table, tokens, key, timeout_s)
        new = _keys(table, changed.get(tablet, []), key, timeout_s)
        gone = old.join(new, keys=key, join_type="left anti") if new.num_rows else old
        if gone.num_rows:
            removed += epoch.delete(gone, timeout_s=timeout_s).written
    return removed


def _by_tablet(tokens: Sequence[ScanToken]) -> dict[str, list[ScanToken]]:
    found: dict[str, list[ScanToken]] = {}
    for token in tokens:
        for part in token.parts or ():
            found.setdefault(part.tablet_id, []).append(token)
    return found


def _keys(table: Table, tokens: Sequence[ScanToken], key: Sequence[str], timeout_s: float) -> Any:
    import pyarrow as pa

    read = [table.open(token, timeout_s=timeout_s).to_arrow().select(key) for token in tokens]
    return pa.concat_tables(read) if read else pa.table({name: [] for name in key})
