"""A closed loop of appends through the kernel's log writer: each answer starts the next append.

The loop calls the writer as the kernel's executor does: the appends that the answers of one turn of the event loop
start are sent at the end of the turn, in one reservation for each log, like the entries of one Ready. The next entries
are made while the earlier ones are written, and logs are collected as they grow."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import TypeAlias

from stelae.host.log_writer import LogWriter
from stelae.spi.ids import LogId, OpId
from stelae.spi.log import ENTRY_OVERHEAD_BYTES, Entry, EntryKind
from stelae.spi.wal import Durable, Outcome
from stelae_bench.wal_cases import Bodies

TERM = 1
PROBLEMS_MAX = 5
_WRITE = EntryKind.WRITE

Defer: TypeAlias = Callable[[Callable[[], None]], None]
"""Runs a call at the end of this turn of the event loop, like ``Turns.defer``."""

Collect: TypeAlias = Callable[[LogId, int], None]
"""Starts the collection of a log up to an index, during the appends."""


class AppendLoop:
    """Appends entries to logs, with a fixed number in flight on each. Only one run at a time.

    Each entry has its own acknowledgement and latency. Entries for which the writer's queue has no space wait; that is
    part of their latency.

    Args:
        writer: the writer. Every log is open in it.
        logs: the logs.
        defer: runs calls at the end of a turn of the event loop.
        collect: called for every log after each ``collect_bytes`` of acknowledged bodies per log, with the highest
            index that is certainly acknowledged.
        collect_bytes: acknowledged bytes of each log between two collections.
        last: the index of the last entry of each log.
    """

    def __init__(
        self,
        writer: LogWriter,
        logs: Sequence[LogId],
        defer: Defer,
        collect: Collect,
        collect_bytes: float,
        last: int = 0,
    ) -> None:
        self._writer = writer
        self._defer = defer
        self._collect = collect
        self._collect_bytes = collect_bytes * len(logs)
        self._collect_at = math.inf
        self._in_flight = 0
        self._last = dict.fromkeys(logs, last)
        self._scheduled: dict[LogId, tuple[int, float]] = {}
        self._prepared: dict[LogId, tuple[Entry, ...]] = {}
        self._waiting: deque[tuple[LogId, int, float]] = deque()
        self._finished: asyncio.Future[None] | None = None
        self._bodies = Bodies(0, 0)
        self._until = self._ended = 0.0
        self._left = 0.0
        self._entry_bytes = 0
        self._under_way = 0
        self.latencies_us: list[float] = []
        self.problems: list[str] = []

    @property
    def last(self) -> dict[LogId, int]:
        """The index of the last entry that was appended to each log."""
        return self._last

    async def run(self, bodies: Bodies, in_flight: int, seconds: float, entries_max: float = math.inf) -> float:
        """Append until the time is over or ``entries_max`` entries are sent; return when all are answered.

        Returns:
            The seconds from the first append to the last acknowledgement. ``latencies_us`` has the latency of each
            acknowledged entry, ``problems`` has the errors.
        """
        self.latencies_us, self.problems = [], []
        self._prepared.clear()
        self._finished = asyncio.get_running_loop().create_future()
        self._bodies, self._left, self._in_flight = bodies, entries_max, in_flight
        self._collect_at = self._entries_between_collections()
        self._entry_bytes = bodies.entry_bytes + ENTRY_OVERHEAD_BYTES
        began = self._ended = time.perf_counter()
        self._until = began + seconds
        for log in self._last:
            self._schedule(log, in_flight, began)
        try:
            await self._finished
        finally:  # After a cancellation the writer is closed next: no append may be sent after that.
            self._until = 0.0
            self._scheduled.clear()
            self._waiting.clear()
        return self._ended - began

    def _schedule(self, log: LogId, count: int, began: float) -> None:
        """Schedule ``count`` entries of a log, or as many as are left of the run, for the end of this turn."""
        if count > self._left:
            count = int(self._left)
        if not count:
            return
        self._left -= count
        self._under_way += count
        due = self._scheduled
        if not due:
            self._defer(self._send)
        waiting = due.get(log)
        due[log] = (count, began) if waiting is None else (waiting[0] + count, waiting[1])

    def _send(self) -> None:
        due, self._scheduled = self._scheduled, {}
        if len(self.latencies_us) >= self._collect_at:
            self._collect_at += self._entries_between_collections()
            for log, last in self._last.items():
                self._collect(log, last - self._in_flight)
        for log, (count, began) in due.items():
            self._append(log, count, began)
        asyncio.get_running_loop().call_soon(self._prepare_next, due)

    def _prepare_next(self, left: dict[LogId, tuple[int, float]]) -> None:
        """Make the next entries while the earlier ones are written."""
        for log, (count, _) in left.items():
            self._prepared[log] = self._entries(log, count)

    def _entries(self, log: LogId, count: int) -> tuple[Entry, ...]:
        body, first = self._bodies.one, self._last[log] + 1
        if count == 1:
            return (Entry(OpId(TERM, first), _WRITE, first, body(first)),)
        return tuple([Entry(OpId(TERM, at), _WRITE, at, body(at)) for at in range(first, first + count)])

    def _append(self, log: LogId, count: int, began: float) -> None:
        writer = self._writer
        if not writer.has_room():
            if not self._waiting:
                writer.when_room(self._resume)
            self._waiting.append((log, count, began))
            return
        entries = self._prepared.pop(log, ())
        if len(entries) != count:
            entries = self._entries(log, count)
        self._last[log] += count
        slot = writer.reserve(log, count * self._entry_bytes)
        writer.append_async(slot, entries, done=partial(self._answered, log, count, began))

    def collected(self, result: object) -> None:
        """Note the outcome of a collection."""
        if isinstance(result, BaseException):
            self.problems.append(f"a collection failed: {result}")

    def _entries_between_collections(self) -> float:
        return self._collect_bytes / max(1, self._bodies.entry_bytes)

    def _resume(self, _room: None) -> None:
        held, self._waiting = self._waiting, deque()
        for log, count, began in held:
            self._append(log, count, began)

    def _answered(self, log: LogId, count: int, began: float, outcome: Outcome) -> None:
        now = time.perf_counter()
        self._under_way -= count
        if isinstance(outcome, Durable):
            self._ended = now
            if count == 1:
                self.latencies_us.append((now - began) * 1e6)
            else:
                self.latencies_us.extend(repeat((now - began) * 1e6, count))
        elif len(self.problems) < PROBLEMS_MAX:
            self.problems.append(f"an append to {log} failed: {outcome.error}")
        if now < self._until and not self.problems:
            self._schedule(log, count, now)
        if not self._under_way and self._finished is not None and not self._finished.done():
            self._finished.set_result(None)
