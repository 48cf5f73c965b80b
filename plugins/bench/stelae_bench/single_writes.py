"""Single-row writes: ``await table.insert(row)``, one row of eight columns in a call of its own.

Each call has its own latency, from the call to the acknowledgement by a majority; the row is checked, encoded and sent
within it. What one turn of the loop produced may share a message, as it does for users."""

from __future__ import annotations

from stelae.client.table import AsyncTable
from stelae_bench.closed_loop import LoopSample, run_calls
from stelae_bench.rows import RowSource

TIMEOUT_S = 20.0
"""How long one write may take, retries included, before the round is given up."""


class SingleWrites:
    """Writes rows to a table, round by round.

    Args:
        table: that gets the rows; it has the columns of ``stelae_bench.rows``.
        rows: gives the rows.
    """

    def __init__(self, table: AsyncTable, rows: RowSource) -> None:
        self._table = table
        self._rows = rows

    async def run(self, in_flight: int, seconds: float) -> LoopSample:
        """Write for a while; return when everything is answered. One run at a time."""
        return await run_calls(self._insert, in_flight, seconds)

    async def _insert(self) -> str:
        result = await self._table.insert(self._rows.next(), errors="return", timeout_s=TIMEOUT_S)
        return f"a row was not taken: {result.failures[0]}" if result.failed else ""
