"""Loads rows into a table with many calls in flight, and records which rows were acknowledged, and when.

Each tablet is loaded by itself: it has its rows in the order of the source, its calls in flight, and the times of its
acknowledgements. So a tablet that cannot accept writes does not delay the others. A load can be slowed down: from a
share of a tablet's rows on, it sends single rows with pauses, until it returns to full speed. So there are still
acknowledgements, and gaps between them can be measured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from stelae.client.failures import UNKNOWN_OUTCOME, WriteResult
from stelae.local.ack_times import AckTimes
from stelae.local.demo_source import DemoSource
from stelae.partition.partitioning import Partitioning
from stelae.spi.errors import DeadlineExceeded
from stelae.spi.rows import RowBatch

CALLS_MAX = 16
"""The most calls in flight to one tablet."""

ROWS_PER_CALL_MAX = 40
IN_FLIGHT_SHARE = 0.02
"""The most of a tablet's rows in flight, as a share of all its rows. A kill at 30 % must not happen at 40 %."""

SLOW_PAUSE_S = 0.05
"""The shortest pause between two rows of a tablet whose load is slowed down."""

SLOW_S = 12.0
SLOW_SHARE = 0.08
"""A tablet whose load is slowed down sends at most this share of its rows in ``SLOW_S`` seconds. If it has few rows,
its pauses are longer."""

WRITE_TIMEOUT_S = 20.0
PROBLEMS_MAX = 5


class LoadedTable(Protocol):
    """The part of ``AsyncTable`` that a load uses."""

    async def insert(self, rows: Any, *, errors: str, timeout_s: float) -> WriteResult:
        """Insert rows. With ``errors="return"``, failures are in the result."""
        ...


class TabletLoad:
    """The load of one tablet: the numbers of its rows in the source, and how many were sent and acknowledged."""

    def __init__(self, numbers: Sequence[int], now: Callable[[], float]) -> None:
        self.numbers = numbers
        self.sent = 0
        self.calls = 0
        self.slow_from = len(numbers)
        self.timer: asyncio.TimerHandle | None = None
        self.acks = AckTimes(now)
        share = int(len(numbers) * IN_FLIGHT_SHARE / CALLS_MAX)
        self.rows_per_call = max(1, min(ROWS_PER_CALL_MAX, share))
        self.pause_s = max(SLOW_PAUSE_S, SLOW_S / max(1.0, SLOW_SHARE * len(numbers)))

    @property
    def may_send(self) -> bool:
        """Whether there are rows to send, and another call may be in flight."""
        return self.sent < len(self.numbers) and self.calls < CALLS_MAX

    @property
    def is_slow(self) -> bool:
        """Whether only single rows are sent."""
        return self.sent >= self.slow_from

    def take(self) -> Sequence[int]:
        """Return the numbers of the rows of the next call, and count the call as in flight."""
        count = 1 if self.is_slow else min(self.rows_per_call, self.slow_from - self.sent)
        numbers = self.numbers[self.sent : self.sent + count]
        self.sent += len(numbers)
        self.calls += 1
        return numbers

    def answered(self) -> None:
        """Record the acknowledgement of a call."""
        self.calls -= 1
        self.acks.note(last=not self.calls and self.sent == len(self.numbers))


class DemoLoad:
    """The load of a source into a table. The rows are inserted, so a row that took effect twice would be an error.

    Args:
        table: the table, which is empty.
        partitioning: decides in which partition a row is.
        source: the rows.
        on_acked: called after each acknowledged call.
    """

    def __init__(
        self, table: LoadedTable, partitioning: Partitioning, source: DemoSource, on_acked: Callable[[], None]
    ) -> None:
        self._table = table
        self._rows = source.rows
        self._on_acked = on_acked
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []
        numbers = numbers_by_partition(partitioning, source)
        self.tablet_loads = [TabletLoad(of_tablet, self._loop.time) for of_tablet in numbers]
        self.acked = bytearray(len(source.rows))
        """1 for each row that was acknowledged, by its number in the source."""
        self.acked_count = 0
        self.problems: list[str] = []

    @property
    def running(self) -> bool:
        """Whether rows are still to be acknowledged."""
        return not self._finished.done()

    @property
    def share(self) -> float:
        """The share of all rows that is acknowledged, from 0 to 1."""
        return self.acked_count / len(self._rows)

    async def run(self) -> None:
        """Send all rows; return when every row is acknowledged or refused.

        Raises:
            DeadlineExceeded: a write had no answer in time.
            StelaeError: the first error of a write as a whole.
        """
        try:
            for load in self.tablet_loads:
                self._fill(load)
            await self._finished
        finally:
            self._wake()

    def slow_down_at(self, share: float) -> None:
        """Send only single rows to each tablet from this share of its rows on, until a later call."""
        for load in self.tablet_loads:
            load.slow_from = int(len(load.numbers) * share)
            self._fill(load)

    def full_speed(self) -> None:
        """Send all remaining rows at full speed."""
        self.slow_down_at(1.0)

    async def reached(self, share: float) -> None:
        """Wait until this share of all rows is acknowledged, or the load ends."""
        if self.running and self.share < share:
            reached: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((share, reached))
            await reached

    def longest_gap_ms(self, partitions: Iterable[int], since: float, until: float) -> float:
        """Return the longest gap on any of the tablets of these partitions; see ``AckTimes``."""
        loads = [load for number in partitions if (load := self.tablet_loads[number]).numbers]
        return max((load.acks.longest_gap_ms(since, until) for load in loads), default=0.0)

    # -- sending ---------------------------------------------------------------------------------

    def _fill(self, load: TabletLoad) -> None:
        """Send rows to a tablet until enough calls are in flight, or start the timer of the next single row."""
        while self.running and load.may_send:
            if load.is_slow:
                if load.timer is None:
                    load.timer = self._loop.call_later(load.pause_s, self._send_single, load)
                return
            self._send(load)

    def _send_single(self, load: TabletLoad) -> None:
        load.timer = None
        if self.running and load.may_send and load.is_slow:
            self._send(load)
        self._fill(load)

    def _send(self, load: TabletLoad) -> None:
        numbers = load.take()
        rows = [self._rows[number] for number in numbers]
        call = asyncio.ensure_future(self._insert(rows))
        call.add_done_callback(partial(self._answered, load, numbers))

    async def _insert(self, rows: Sequence[tuple[Any, ...]]) -> WriteResult:
        result = await self._table.insert(rows, errors="return", timeout_s=WRITE_TIMEOUT_S)
        for failure in result.failures:
            if failure.code == UNKNOWN_OUTCOME:
                raise DeadlineExceeded(failure.reason)
        return result

    # -- answers ---------------------------------------------------------------------------------

    def _answered(self, load: TabletLoad, numbers: Sequence[int], call: asyncio.Future[WriteResult]) -> None:
        if call.cancelled():
            return
        error = call.exception()
        if self._finished.done():
            return
        if error is not None:
            # The outcome of the write is unknown, so lost rows could not be distinguished from rows never written.
            self._finished.set_exception(error)
            # ``run`` raises the error. If ``run`` was cancelled, asyncio must not log it as never retrieved.
            self._finished.exception()
            return
        load.answered()
        self._count(numbers, call.result())
        self._on_acked()
        self._fill(load)
        if all(one.sent == len(one.numbers) and not one.calls for one in self.tablet_loads):
            self._finished.set_result(None)
        self._wake()

    def _count(self, numbers: Sequence[int], result: WriteResult) -> None:
        refused = {failure.row for failure in result.failures}
        problems = [f"row {numbers[one.row]} of the source: {one.code}: {one.reason}" for one in result.failures]
        self.problems += problems[: PROBLEMS_MAX - len(self.problems)]
        for row, number in enumerate(numbers):
            if row not in refused:
                self.acked[number] = 1
                self.acked_count += 1

    def _wake(self) -> None:
        remaining = []
        for share, reached in self._waiting:
            if self.running and self.share < share:
                remaining.append((share, reached))
            elif not reached.done():
                reached.set_result(None)
        self._waiting = remaining


def numbers_by_partition(partitioning: Partitioning, source: DemoSource) -> list[list[int]]:
    """Return the numbers of the rows in each partition, in the order of the source."""
    found: list[list[int]] = [[] for _ in partitioning.partitions]
    keys = RowBatch.from_equal_rows(partitioning.schema.key_layout, source.keys())
    for number, partition in enumerate(partitioning.partitions_of(keys)):
        found[partition].append(number)
    return found
