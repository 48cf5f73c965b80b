"""Loads rows into a tablet with many operations in flight, and knows which were acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from stelae.client.client import Tablet
from stelae.local.acks import AckTimes
from stelae.spi.write import OpKind, OpResult

IN_FLIGHT_MAX = 64
ROWS_PER_OPERATION = 10
TRICKLE_S = 0.02
"""While the load is held back, one operation leaves in this time: gaps stay measurable."""

WRITE_TIMEOUT_S = 20.0


class Load:
    """One load of rows. Rows are sent in order; acknowledgements are counted per row.

    Args:
        tablet: where to.
        rows: what; inserted, so that a row that took effect twice would be an error.
        on_acked: called after each acknowledged operation.
    """

    def __init__(self, tablet: Tablet, rows: Sequence[tuple[Any, ...]], on_acked: Callable[[], None]) -> None:
        self._tablet = tablet
        self._rows = rows
        self._on_acked = on_acked
        self._loop = asyncio.get_running_loop()
        self._finished = self._loop.create_future()
        self._next = 0
        self._in_flight = 0
        self._hold_from: int | None = None
        self._trickle: asyncio.TimerHandle | None = None
        self.acks = AckTimes(self._loop.time)
        self.acked = bytearray(len(rows))
        self.acked_count = 0
        self.problems: list[str] = []

    @property
    def running(self) -> bool:
        """True while rows are still to be acknowledged."""
        return not self._finished.done()

    async def run(self) -> None:
        """Send everything; returns when every row is acknowledged, or cannot be.

        Raises:
            StelaeError: the first error that a write ended with.
        """
        self._fill()
        await self._finished

    def hold_from(self, row: int) -> None:
        """From this row on, send only a trickle until ``release``."""
        self._hold_from = row

    def release(self) -> None:
        """Go on at full speed."""
        self._hold_from = None
        self._fill()

    def _held(self) -> bool:
        return self._hold_from is not None and self._next >= self._hold_from

    def _fill(self) -> None:
        while self._next < len(self._rows) and self._in_flight < IN_FLIGHT_MAX:
            if self._held():
                if self._trickle is None:
                    self._trickle = self._loop.call_later(TRICKLE_S, self._drip)
                return
            self._send()

    def _drip(self) -> None:
        self._trickle = None
        if self._held() and self._in_flight < IN_FLIGHT_MAX and self._next < len(self._rows):
            self._send()
        self._fill()

    def _send(self) -> None:
        first = self._next
        rows = list(self._rows[first : first + ROWS_PER_OPERATION])
        self._next += len(rows)
        self._in_flight += 1
        future = self._tablet.write(OpKind.INSERT, rows, timeout_s=WRITE_TIMEOUT_S)
        future.add_done_callback(lambda done: self._answered(first, len(rows), done))

    def _answered(self, first: int, count: int, done: asyncio.Future[OpResult]) -> None:
        self._in_flight -= 1
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if self._finished.done():
            return
        if error is not None:
            self._finished.set_exception(error)
            return
        self._count(first, count, done.result())
        self.acks.note()
        self._on_acked()
        if self._next >= len(self._rows) and not self._in_flight:
            self._finished.set_result(None)
        else:
            self._fill()

    def _count(self, first: int, count: int, result: OpResult) -> None:
        if result.refusal:
            self.problems.append(f"rows from {first}: {result.refusal}: {result.detail}")
            return
        refused = {error.row for error in result.errors}
        for error in result.errors:
            self.problems.append(f"row {first + error.row}: {error.code.name} {error.detail}")
        for offset in range(count):
            if offset not in refused:
                self.acked[first + offset] = 1
                self.acked_count += 1
