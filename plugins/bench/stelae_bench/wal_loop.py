"""A closed loop of appends through the kernel's log writer: with each answer the next one leaves."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Sequence
from functools import partial

from stelae.host.log_writer import LogWriter
from stelae.spi.ids import LogId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.wal import Durable, Outcome
from stelae_bench.wal_cases import Bodies

TERM = 1
PROBLEMS_MAX = 5


class AppendLoop:
    """Appends entries to logs, each of which has so many under way; one run at a time.

    An append is one entry in a reservation of its own, and has its own acknowledgement. One that
    the writer has no room for waits until it has; that is part of its latency.

    Args:
        writer: where to; every log is open in it.
        logs: which logs.
        last: index of the last entry of each.
    """

    def __init__(self, writer: LogWriter, logs: Sequence[LogId], last: int = 0) -> None:
        self._writer = writer
        self._last = dict.fromkeys(logs, last)
        self._held: deque[tuple[LogId, float]] = deque()
        self._finished: asyncio.Future[None] | None = None
        self._bodies = Bodies(0, 0)
        self._until = self._ended = 0.0
        self._left = 0.0
        self._under_way = 0
        self.latencies_us: list[float] = []
        self.problems: list[str] = []

    @property
    def last(self) -> dict[LogId, int]:
        """Index of the last entry of each log that was appended."""
        return self._last

    async def run(self, bodies: Bodies, in_flight: int, seconds: float, entries_max: float = math.inf) -> float:
        """Append until the time is over or so many entries left; return when all are answered.

        Returns:
            seconds from the first append to the last acknowledgement; the rest is in
            ``latencies_us`` (one for each acknowledged entry) and ``problems``.
        """
        self.latencies_us, self.problems = [], []
        self._finished = asyncio.get_running_loop().create_future()
        self._bodies, self._left = bodies, entries_max
        began = self._ended = time.perf_counter()
        self._until = began + seconds
        for log in self._last:
            for _ in range(in_flight):
                if self._left > 0:
                    self._under_way += 1
                    self._left -= 1
                    self._append(log, time.perf_counter())
        await self._finished
        return self._ended - began

    def _append(self, log: LogId, began: float) -> None:
        if not self._writer.has_room():
            if not self._held:
                self._writer.when_room(self._go_on)
            self._held.append((log, began))
            return
        index = self._last[log] = self._last[log] + 1
        entry = Entry(OpId(TERM, index), EntryKind.WRITE, index, self._bodies.one(index))
        slot = self._writer.reserve(log, entry.size_bytes)
        self._writer.append_async(slot, (entry,), done=partial(self._answered, log, began))

    def _go_on(self) -> None:
        held, self._held = self._held, deque()
        for log, began in held:
            self._append(log, began)

    def _answered(self, log: LogId, began: float, outcome: Outcome) -> None:
        now = time.perf_counter()
        if isinstance(outcome, Durable):
            self._ended = now
            self.latencies_us.append((now - began) * 1e6)
        elif len(self.problems) < PROBLEMS_MAX:
            self.problems.append(f"an append to {log} failed: {outcome.error}")
        if now < self._until and self._left > 0 and not self.problems:
            self._left -= 1
            self._append(log, now)
            return
        self._under_way -= 1
        if not self._under_way and self._finished is not None and not self._finished.done():
            self._finished.set_result(None)
