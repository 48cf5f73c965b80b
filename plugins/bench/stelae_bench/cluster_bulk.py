"""Bulk load: Arrow tables handed to the client by a few writers at once, durable, and compared when read back.

A round takes the next rows of the data set until its time is up; what it gives is the rows acknowledged by a majority
between its first call and its last answer."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stelae.client.table import AsyncTable
from stelae_bench.cluster_data import DataSet

WRITERS = 4
"""Calls of the client that are under way at once."""

PIECE_ROWS = 16_384
"""Most rows that a writer hands over in one call, which the client sends as one operation."""

WARM_UP_ROWS = 1024
"""Rows that are loaded before anything is measured, at most a tenth of all: libraries are loaded with the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRound:
    """One round: rows and bytes (of Arrow values) that were acknowledged, and how long that took."""

    rows: int
    value_bytes: int
    seconds: float


class BulkLoad:
    """Loads a data set round by round, from its first row on.

    Args:
        table: empty.
        data: what to load.
        rounds: how many rounds there are to be; each may take its share of what is left.
    """

    def __init__(self, table: AsyncTable, data: DataSet, rounds: int) -> None:
        self._table = table
        self._rows = data.rows
        self._rounds_left = rounds
        self._taken = 0
        self.timestamp = 0
        """Of the last row that was acknowledged."""
        self.problems: list[str] = []

    @property
    def loaded(self) -> Any:
        """The rows that were handed over, as a ``pyarrow.Table``; all are acknowledged unless there are problems."""
        return self._rows.slice(0, self._taken)

    async def warm_up(self) -> None:
        """Load a few rows that belong to no round."""
        await self._write(min(WARM_UP_ROWS, len(self._rows) // 10), WARM_UP_ROWS, math.inf)

    async def round(self, seconds: float) -> LoadRound:
        """Load for a while, or until this round's share is used up; return when everything is answered."""
        first = self._taken
        share = -(-(len(self._rows) - first) // max(1, self._rounds_left))
        self._rounds_left -= 1
        piece_rows = min(PIECE_ROWS, -(-share // WRITERS))  # A small load keeps all writers busy, too.
        began = time.monotonic()
        writers = (self._write(first + share, piece_rows, began + seconds) for _ in range(WRITERS))
        await asyncio.gather(*writers)
        ended = time.monotonic()
        taken = self._rows.slice(first, self._taken - first)
        return LoadRound(rows=len(taken), value_bytes=taken.nbytes, seconds=ended - began)

    async def _write(self, end: int, piece_rows: int, until: float) -> None:
        while self._taken < end and time.monotonic() < until and not self.problems:
            start = self._taken
            piece = self._rows.slice(start, min(piece_rows, end - start))
            self._taken += len(piece)
            result = await self._table.insert(piece, errors="return")
            self.timestamp = max(self.timestamp, result.timestamp)
            if result.failed:
                self.problems.append(f"{result.failed} rows were not taken: {result.failures[0]}")


def differences(name: str, source: Any, read: Any, key: Sequence[str]) -> list[str]:
    """Compare what was read with what was loaded, value for value, in whatever order both are.

    Args:
        name: of the table, for people.
        source, read: ``pyarrow.Table`` objects with the same columns; keys in ``source`` are unique.
    """
    if len(read) != len(source):
        return [f"{name}: {len(source)} rows were acknowledged and {len(read)} are there"]
    order = [(column, "ascending") for column in key]
    mine, theirs = source.sort_by(order), read.select(source.column_names).cast(source.schema).sort_by(order)
    return [
        f"{name}: column {column!r} is not as it was loaded"
        for column in source.column_names
        if not _equal(mine.column(column), theirs.column(column))
    ]


def _equal(mine: Any, theirs: Any) -> bool:
    return bool(mine.equals(theirs))
