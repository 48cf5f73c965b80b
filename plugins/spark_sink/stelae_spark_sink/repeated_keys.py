"""Counts rows that have the key of another row, in a batch of a task."""

from __future__ import annotations

import sys
from typing import Any

from stelae.client import Table
from stelae.spi.schema import Schema


def repeated_keys(rows: Any, schema: Schema) -> int:
    """Return how many rows of a ``pyarrow.Table`` are not the only or the first one of their key.

    It takes 2 to 3 ms for 65 536 rows. Zero and minus zero, which are one key for a table, count as two."""
    names = [column.name for column in schema.key_layout.columns]
    return int(rows.num_rows - rows.select(names).group_by(names).aggregate([]).num_rows)


def warn_of_repeated_keys(table: Table, count: int) -> None:
    """Tell the log of the driver how many rows of a job repeat the key of another row, if any."""
    if not count:
        return
    columns = ", ".join(repr(name) for name in table.key)
    fact = f"at least {count} rows for table {table.name!r} have the key of another row of their task"
    risk = "an older row can stay for good if a task runs twice"
    way = f"groupBy({columns}).agg(max_by(...)), or dropDuplicates([{columns}]) if they are equal"
    text = f"stelae: warning: {fact}, and {risk}; write one row for each key, for example with {way}"
    print(text, file=sys.stderr)
