"""A closed loop of single-row writes: so many in flight, and with each answer the next one leaves.

A single-row write is one row of eight mixed columns in a call of its own, with its own sequence
number, its own acknowledgement after a majority has made it durable, and its own latency. The row
is encoded within the measured time. What one turn of the loop produced may share a message."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import msgspec

from stelae.client.client import Tablet
from stelae.spi.write import OpKind, OpResult
from stelae_bench.rows import RowSource

TIMEOUT_S = 20.0
"""How long one write may take, retries included, before the round is given up."""

PROBLEMS_MAX = 5


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What one round of one process gave.

    Attributes:
        began, ended: seconds on the machine's monotonic clock, which its processes share; from
            the first write's encoding to the last acknowledgement.
        latencies_ms: of each acknowledged write, in order of the acknowledgements.
        problems: why writes were not taken; empty when all were.
    """

    began: float
    ended: float
    latencies_ms: list[float]
    problems: list[str]


class ClosedLoop:
    """Writes rows to a tablet, round by round.

    Args:
        tablet: where to.
        rows: what.
    """

    def __init__(self, tablet: Tablet, rows: RowSource) -> None:
        self._tablet = tablet
        self._rows = rows
        self._finished: asyncio.Future[None] | None = None
        self._until = 0.0
        self._last = 0.0
        self._in_flight = 0
        self._latencies_ms: list[float] = []
        self._problems: list[str] = []

    async def run(self, in_flight: int, seconds: float) -> Sample:
        """Write for a while; return when everything is answered. One run at a time."""
        self._latencies_ms, self._problems = [], []
        self._finished = asyncio.get_running_loop().create_future()
        began = self._last = time.monotonic()
        self._until = began + seconds
        self._in_flight = in_flight
        for _ in range(in_flight):
            self._send(began)
        await self._finished
        return Sample(began=began, ended=self._last, latencies_ms=self._latencies_ms, problems=self._problems)

    def _send(self, began: float) -> None:
        future = self._tablet.write(OpKind.INSERT, [self._rows.next()], timeout_s=TIMEOUT_S)
        future.add_done_callback(partial(self._answered, began))

    def _answered(self, began: float, done: asyncio.Future[OpResult]) -> None:
        now = time.monotonic()
        problem = _problem(done)
        if problem:
            if len(self._problems) < PROBLEMS_MAX:
                self._problems.append(problem)
        else:
            self._last = now
            self._latencies_ms.append((now - began) * 1000)
        if now < self._until and not self._problems:
            self._send(now)
            return
        self._in_flight -= 1
        if not self._in_flight and self._finished is not None and not self._finished.done():
            self._finished.set_result(None)


def _problem(done: asyncio.Future[OpResult]) -> str:
    try:
        result = done.result()
    except asyncio.CancelledError:
        return "a write was cancelled"
    except Exception as error:
        return f"a write failed: {error}"
    if result.refusal:
        return f"a write was refused: {result.refusal}: {result.detail}"
    if result.errors:
        return f"a row was not taken: {result.errors[0].code.name} {result.errors[0].detail}"
    return ""
