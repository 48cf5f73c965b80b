"""Single-row writes: ``await table.upsert(row)``, one row of eight columns in a call of its own.

Each call has its own latency, from the call to the acknowledgement by a majority. That includes checking, encoding and
sending the row. Calls of one turn of the event loop may share a message, as they do for users. Every key is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from stelae.client.table import AsyncTable
from stelae_bench.closed_loop import LoopSample, run_calls
from stelae_bench.rows import RowSource

TIMEOUT_S = 20.0
"""The longest time of one write, retries included. After it the round fails."""


class SingleWrites:
    """Writes rows to a table, round by round.

    Args:
        table: the table to write to; it has the columns of ``stelae_bench.rows``.
        rows: the source of rows.
    """

    def __init__(self, table: AsyncTable, rows: RowSource) -> None:
        self._table = table
        self._rows = rows

    async def run(self, in_flight: int, seconds: float, ended: Callable[[], bool] = lambda: False) -> LoopSample:
        """Write for ``seconds``, or until ``ended``; return when every call is answered. Only one run at a time."""
        before = Counter(self._table.retries)
        sample = await run_calls(self._upsert, in_flight, seconds, ended)
        return msgspec.structs.replace(sample, retries=dict(Counter(self._table.retries) - before))

    async def _upsert(self) -> str:
        result = await self._table.upsert(self._rows.next(), errors="return", timeout_s=TIMEOUT_S)
        return f"a row was refused: {result.failures[0]}" if result.failed else ""
