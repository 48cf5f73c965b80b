"""Bulk load: a few writers pass Arrow tables to the client. The rows are durable, and compared when read back.

A round loads the next rows of the data set until its time is over. Its result is the number of rows that a majority
acknowledged, and the time from its first call to its last answer."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stelae.client.table import AsyncTable
from stelae_bench.cluster_data import DataSet
from stelae_bench.measured_round import MeasuredRound

WRITERS = 4
"""Calls of the client that are under way at a time."""

CALL_ROWS_MAX = 16_384
"""The most rows of one call, which the client sends as one operation."""

WARM_UP_ROWS = 1024
"""Rows that are loaded before anything is measured, at most a tenth of all. The first rows load libraries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRound(MeasuredRound):
    """One round: the acknowledged rows, their bytes as Arrow values, and the seconds that the round took."""

    rows: int
    value_bytes: int
    seconds: float

    @property
    def operations(self) -> int:
        """The number of rows."""
        return self.rows


class BulkLoad:
    """Loads a data set round by round, from its first row on.

    Args:
        table: the empty table to load.
        data: the rows.
        rounds: the number of rounds. Each may use its share of the rows that are left.
    """

    def __init__(self, table: AsyncTable, data: DataSet, rounds: int) -> None:
        self._table = table
        self._rows = data.rows
        self._rounds_left = rounds
        self._taken = 0
        self.timestamp = 0
        """The hybrid timestamp of the last acknowledged row."""
        self.problems: list[str] = []

    @property
    def loaded(self) -> Any:
        """The rows passed to the client, as a ``pyarrow.Table``. All are acknowledged unless there are problems."""
        return self._rows.slice(0, self._taken)

    async def warm_up(self) -> None:
        """Load a few rows before the first round."""
        await self._write(min(WARM_UP_ROWS, len(self._rows) // 10), WARM_UP_ROWS, math.inf)

    async def round(self, seconds: float) -> LoadRound:
        """Load for ``seconds``, or until this round's share of the rows is used; return when every call is answered."""
        first = self._taken
        share = -(-(len(self._rows) - first) // max(1, self._rounds_left))
        self._rounds_left -= 1
        call_rows = min(CALL_ROWS_MAX, -(-share // WRITERS))  # A small load keeps all writers busy, too.
        began = time.monotonic()
        writers = (self._write(first + share, call_rows, began + seconds) for _ in range(WRITERS))
        await asyncio.gather(*writers)
        ended = time.monotonic()
        taken = self._rows.slice(first, self._taken - first)
        return LoadRound(rows=len(taken), value_bytes=taken.nbytes, seconds=ended - began)

    async def _write(self, end: int, call_rows: int, until: float) -> None:
        while self._taken < end and time.monotonic() < until and not self.problems:
            start = self._taken
            rows = self._rows.slice(start, min(call_rows, end - start))
            self._taken += len(rows)
            result = await self._table.insert(rows, errors="return")
            self.timestamp = max(self.timestamp, result.timestamp)
            if result.failed:
                self.problems.append(f"{result.failed} rows were refused: {result.failures[0]}")


def differences(name: str, source: Any, read: Any, key: Sequence[str]) -> list[str]:
    """Compare the rows that were read with those that were loaded, value by value; return the differences as texts.

    Args:
        name: the name of the table, for messages.
        source, read: ``pyarrow.Table`` objects with the same columns, in any order of rows. Keys in ``source`` are
            unique.
        key: the key columns.
    """
    if len(read) != len(source):
        return [f"{name}: {len(source)} rows were acknowledged, but {len(read)} were read"]
    order = [(column, "ascending") for column in key]
    loaded, found = source.sort_by(order), read.select(source.column_names).cast(source.schema).sort_by(order)
    return [
        f"{name}: column {column!r} differs from the loaded values"
        for column in source.column_names
        if not _equal(loaded.column(column), found.column(column))
    ]


def _equal(loaded: Any, found: Any) -> bool:
    return bool(loaded.equals(found))
