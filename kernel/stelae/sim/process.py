"""One run of a node's process, with a virtual event loop, virtual threads and virtual timers.

Everything that the process does is an event of the scheduler. A process that has ended runs nothing
any more. A paused process runs the calls that became due during the pause, in order, when it is
resumed. Work that production does on threads (log writer, metadata pool, apply) is split into two
events, the work itself and its completion on the loop, so that a crash can happen between them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from stelae.host.log_writer import CommitGroup, Completion, LogWriter
from stelae.host.ports import Timer
from stelae.sim.clock import VirtualClock
from stelae.sim.draw import skewed
from stelae.sim.scheduler import Scheduler
from stelae.spi.errors import StelaeError, StorageError
from stelae.spi.ids import LogId
from stelae.spi.log import Entry
from stelae.spi.wal import Begun, WalEngine

ProcessCall: TypeAlias = Callable[[], None]
DurationRange: TypeAlias = tuple[int, int]
"""Shortest and longest duration in microseconds."""

HOP_US = 5
"""Time for a call from a thread to reach the event loop."""


class Process:
    """A node's process from start to crash.

    Args:
        label: names the node in the trace.
        on_raise: called with what a turn raised, ``PowerLost`` included. The process has ended then.
    """

    def __init__(
        self, scheduler: Scheduler, clock: VirtualClock, label: str, on_raise: Callable[[BaseException], None]
    ) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._label = label
        self._on_raise = on_raise
        self._first: deque[ProcessCall] = deque()
        self._last: deque[ProcessCall] = deque()
        self._held: list[ProcessCall] = []
        self._running = False
        self.alive = True
        self.paused = False
        self.on_end: list[ProcessCall] = []
        """Called once when the process has ended."""

    # -- start, pause, end -----------------------------------------------------------------------

    def end(self) -> None:
        """End the process. None of its calls runs any more."""
        self.alive = False
        self._held.clear()
        self._first.clear()
        self._last.clear()
        ending, self.on_end = self.on_end, []
        for call in ending:
            call()

    def pause(self) -> None:
        """Pause the process, with its threads and timers."""
        self.paused = True

    def resume(self) -> None:
        """Resume the process. Calls that became due during the pause run now, in the order in which they became due."""
        self.paused = False
        held, self._held = self._held, []
        for call in held:
            self.schedule(0, "resumed", call)

    @property
    def in_turn(self) -> bool:
        """True while a turn of this process runs."""
        return self._running

    # -- running turns ---------------------------------------------------------------------------

    def schedule(self, delay_us: int, label: str, call: ProcessCall) -> Timer:
        """Run ``call`` as a turn of the loop after ``delay_us``, if the process has not ended by then."""
        return self._scheduler.after(delay_us, f"{self._label}.{label}", lambda: self.run(call))

    def run(self, call: ProcessCall) -> None:
        """Run one turn: ``call``, then all calls that were deferred in it."""
        if not self.alive:
            return
        if self.paused:
            self._held.append(call)
            return
        if self._running:
            raise RuntimeError("a turn of the loop was started within another")
        self._running = True
        try:
            call()
            while self.alive and (self._first or self._last):
                (self._first or self._last).popleft()()
        except BaseException as raised:
            self.end()
            self._on_raise(raised)
        finally:
            self._running = False

    # -- Turns -----------------------------------------------------------------------------------

    def now_us(self) -> int:
        """Return the monotonic time of this node in microseconds."""
        return self._clock.monotonic_us()

    def defer(self, call: ProcessCall) -> None:
        """Run ``call`` at the end of this turn."""
        self._first.append(call)

    def defer_last(self, call: ProcessCall) -> None:
        """Run ``call`` at the end of this turn, after all deferred calls."""
        self._last.append(call)

    def call_at(self, when_us: int, call: ProcessCall) -> Timer:
        """Run ``call`` at or after ``when_us`` of this node's monotonic clock."""
        timer = _ProcessTimer(call)
        timer.event = self.schedule(self._clock.true_delay_us(when_us), "timer", timer.run)
        return timer


class _ProcessTimer:
    """A timer of an event loop. It can be cancelled until it runs, also if the process was paused when it was due."""

    def __init__(self, call: ProcessCall) -> None:
        self._call: ProcessCall | None = call
        self.event: Timer | None = None

    def run(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()

    def cancel(self) -> None:
        """Cancel the call. Harmless if it has run."""
        self._call = None
        if self.event is not None:
            self.event.cancel()


class VirtualPool:
    """A virtual ``BlockingPool``: runs the work of each key in order.

    Args:
        duration_us: returns the current range of durations of a piece of work; called for each piece.
        finish_us: shortest and longest time from the work itself to its completion on the loop.
    """

    def __init__(
        self,
        process: Process,
        rng: random.Random,
        label: str,
        duration_us: Callable[[], DurationRange],
        finish_us: DurationRange = (HOP_US, HOP_US),
    ) -> None:
        self._process = process
        self._rng = rng
        self._label = label
        self._duration_us = duration_us
        self._finish_us = finish_us
        self._queues: dict[str, deque[tuple[Callable[[], Any], Callable[[Any], None]]]] = {}

    def run(self, key: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run ``work`` after earlier work of ``key``, then ``done(result)`` on the loop.

        The result is the ``StelaeError`` if ``work`` raises one."""
        waiting = self._queues.setdefault(key, deque())
        waiting.append((work, done))
        if len(waiting) == 1:
            self._start(key)

    def _start(self, key: str) -> None:
        delay_us = skewed(self._rng, *self._duration_us())
        self._process.schedule(delay_us, self._label, lambda: self._work(key))

    def _work(self, key: str) -> None:
        work, done = self._queues[key][0]
        try:
            result = work()
        except StelaeError as error:
            result = error
        self._done(key, done, result)

    def _done(self, key: str, done: Callable[[Any], None], result: Any) -> None:
        """Complete a piece of work on the loop, a moment later."""

        def finish() -> None:
            waiting = self._queues[key]
            waiting.popleft()
            if waiting:
                self._start(key)
            done(result)

        shortest_us, longest_us = self._finish_us
        delay_us = shortest_us if shortest_us == longest_us else skewed(self._rng, shortest_us, longest_us)
        self._process.schedule(delay_us, f"{self._label}.done", finish)


class VirtualLogDriver:
    """Moves the work of a log writer into an engine, without threads and system calls.

    Without the fast preset, the engine's work happens at one instant of virtual time, and its completions arrive after
    a drawn delay. With the fast preset, the steps of a commit that the engine begins happen at different times: begin,
    write, finish. A crash between two steps may leave entries durable that were not reported as durable.

    Args:
        fast: use the fast preset: begin commits where the engine can do so.
    """

    def __init__(
        self,
        process: Process,
        engine: WalEngine,
        rng: random.Random,
        duration_us: Callable[[], DurationRange],
        *,
        fast: bool,
        writer: Callable[[ProcessCall, Callable[[list[Completion]], None]], LogWriter],
    ) -> None:
        self._process = process
        self._engine = engine
        self._rng = rng
        self._duration_us = duration_us
        self._fast = fast
        self._busy = False
        self.writer = writer(self._wake, self._post)

    def _wake(self) -> None:
        if not self._busy:
            self._busy = True
            self._process.schedule(HOP_US, "wal", self._take)

    def _take(self) -> None:
        work = self.writer.take_work()
        if work is None:
            self._busy = False
            return
        duration_us = skewed(self._rng, *self._duration_us())
        begun = self._engine.begin(work.appends) if self._fast and isinstance(work, CommitGroup) else None
        if begun is not None:
            assert isinstance(work, CommitGroup)
            self._begin(work, begun, duration_us)
            return
        completions = self.writer.perform(work, self._engine)
        self._process.schedule(duration_us, "wal.done", lambda: self._finish(completions))

    def _begin(self, group: CommitGroup, begun: Begun, duration_us: int) -> None:
        def write() -> None:
            failures = [one.failure() for one in begun.writes]
            begun.meanwhile()
            self._process.schedule(duration_us - duration_us // 2, "wal.done", lambda: finish(failures))

        def finish(failures: list[StorageError | None]) -> None:
            self._finish(self.writer.complete(group, begun.finish(failures)))

        self._process.schedule(duration_us // 2, "wal.write", write)

    def _finish(self, completions: list[Completion]) -> None:
        self.writer.post(completions)
        self._take()

    def _post(self, completions: list[Completion]) -> None:
        def deliver() -> None:
            for callback, argument in completions:
                callback(argument)

        self._process.schedule(HOP_US, "wal.post", deliver)


class VirtualReader:
    """A ``LogReader`` on a virtual pool: reads durable entries while the log writer works."""

    def __init__(self, engine: WalEngine, pool: VirtualPool) -> None:
        self._engine = engine
        self._pool = pool

    def read(
        self, log: LogId, first: int, end: int, bytes_max: int, done: Callable[[list[Entry] | StelaeError], None]
    ) -> None:
        """Read entries off the loop. ``done`` runs on the loop, in order for each log."""
        self._pool.run(str(log), lambda: self._engine.read(log, first, end, bytes_max), done)


def where_raised(raised: BaseException) -> str:
    """Name the function and line in which an exception was raised."""
    trace = raised.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f" in {trace.tb_frame.f_code.co_qualname}, line {trace.tb_lineno}"
