"""Turns of the event loop: the events of one turn are stepped once, and the messages of one turn are sent once.

``defer`` runs calls at the end of the turn, in order. ``defer_last`` runs calls after those, and ``defer_after`` runs
calls after everything else. Replicas step in ``defer``, and links flush in ``defer_last``. So all events of a turn
become one batch for each core, and all answers of the cores become one message for each peer. Other threads are woken
in ``defer_after``. If they were woken earlier, they would take the interpreter lock between the frames of a message."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from stelae.host.ports import Timer
from stelae.machine.event_loop import NodeLoop
from stelae.spi.services import Clock, Metrics

log = logging.getLogger(__name__)

LAG_PROBE_US = 100_000
"""How often the loop's lag is measured."""


class LoopTurns:
    """``Turns`` on an asyncio loop. Not shared between loops.

    Args:
        loop: the running loop.
        clock: the monotonic clock. The loop's own timers only wake it.
        on_error: called with the exception of a deferred call, which is always a defect.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, on_error: Callable[[BaseException], None]
    ) -> None:
        self._loop = loop
        self._after_round = loop.after_round if isinstance(loop, NodeLoop) else loop.call_soon
        self._clock = clock
        self._on_error = on_error
        self._first: deque[Callable[[], None]] = deque()
        self._last: deque[Callable[[], None]] = deque()
        self._after: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def now_us(self) -> int:
        """Monotonic microseconds."""
        return self._clock.monotonic_us()

    def defer(self, call: Callable[[], None]) -> None:
        """Run at the end of this turn, in order."""
        self._first.append(call)
        self._schedule()

    def defer_last(self, call: Callable[[], None]) -> None:
        """Run at the end of this turn, after all calls of ``defer`` and earlier calls of ``defer_last``."""
        self._last.append(call)
        self._schedule()

    def defer_after(self, call: Callable[[], None]) -> None:
        """Run at the end of this turn, after all calls of ``defer_last``."""
        self._after.append(call)
        self._schedule()

    def call_at(self, when_us: int, call: Callable[[], None]) -> Timer:
        """Run on the loop at or after ``when_us``."""
        delay_us = max(0, when_us - self._clock.monotonic_us())
        return self._loop.call_later(delay_us / 1e6, self._guarded, call)

    def post(self, call: Callable[[], None]) -> None:
        """Run on the loop soon. Any thread. The call is dropped if the loop has closed."""
        try:
            self._loop.call_soon_threadsafe(self._guarded, call)
        except RuntimeError:
            log.debug("the loop has closed; a completion is dropped")

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._after_round(self._run)

    def _run(self) -> None:
        first, last, after = self._first, self._last, self._after
        while first or last or after:
            self._guarded((first or last or after).popleft())
        self._scheduled = False

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            log.exception("a call on the event loop raised")
            self._on_error(error)


class LagProbe:
    """Measures how late the loop runs its timers: the last lag (``loop_lag_ms``), its maximum, and a histogram."""

    def __init__(self, turns: LoopTurns, metrics: Metrics) -> None:
        self._turns = turns
        self._metrics = metrics
        self._note_us = metrics.histogram("loop_lag_us")
        self._due_us = 0
        self._timer: Timer | None = None
        self.lag_ms_max = 0.0

    def start(self) -> None:
        """Begin to measure."""
        self._due_us = self._turns.now_us() + LAG_PROBE_US
        self._timer = self._turns.call_at(self._due_us, self._measure)

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()

    def _measure(self) -> None:
        lag_us = max(0, self._turns.now_us() - self._due_us)
        self._note_us(lag_us)
        lag_ms = lag_us / 1000
        self.lag_ms_max = max(self.lag_ms_max, lag_ms)
        self._metrics.gauge("loop_lag_ms", lag_ms)
        self._metrics.gauge("loop_lag_ms_max", self.lag_ms_max)
        self.start()
