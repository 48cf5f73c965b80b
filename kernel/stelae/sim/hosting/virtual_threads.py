"""Threads in virtual time, for production's code that blocks: taking a snapshot of a replica, and fetching one.

Such code runs on a real thread, because it blocks in the middle of its functions. But only one thread runs at any time:
the thread of the simulation waits until the other one blocks or ends, and gives it the next result at an event of the
scheduler. So a run is a function of its seed. When a process ends, its threads end where they block."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty
from typing import Any, Final, TypeAlias

from stelae.server.tserver.loop_calls import WAIT_S_MAX, Answers, Begin
from stelae.sim.process import HOP_US, DurationRange, Process, VirtualPool
from stelae.spi.errors import StelaeError, Unavailable

Resume: TypeAlias = Callable[[Any], None]
"""Ends a wait with a result. Calls after the first one have no effect."""

_GONE: Final = object()
"""The result of every wait of a process that has ended."""


class ThreadEnded(BaseException):
    """The process of a virtual thread has ended. It is not an ``Exception``, so that no error handler catches it."""


class VirtualThreads:
    """The virtual threads of one run of a process."""

    def __init__(self, process: Process) -> None:
        self._parked: list[_VirtualThread] = []
        self._current: list[_VirtualThread] = []
        process.on_end.append(self._end)

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run ``work`` on a thread until it blocks. ``done`` gets its result, or the error of a disk or a peer.

        Anything else that it raises, such as a power loss, is raised in the turn in which the thread ran."""
        self._advance(_VirtualThread(work, done), None)

    def block(self, begin: Callable[[Resume], None]) -> Any:
        """Block the calling virtual thread. ``begin`` is called outside of it, and must make sure that the wait ends.

        Return the result of the wait."""
        result = self._current[-1].block(begin)
        if result is _GONE:
            raise ThreadEnded
        return result

    def _advance(self, thread: _VirtualThread, value: Any) -> None:
        """Let a thread run, with the result of its wait, until it blocks for longer than a moment or ends."""
        while True:
            self._current.append(thread)
            begin = thread.go_on(value)
            self._current.pop()
            if begin is None:
                thread.finish()
                return
            self._parked.append(thread)
            wait = _Wait(self, thread)
            begin(wait.end)
            if not wait.ended_at_once():
                return
            value = wait.value

    def resume(self, thread: _VirtualThread, value: Any) -> None:
        """Let a thread go on that was blocked."""
        self._parked.remove(thread)
        self._advance(thread, value)

    def unpark(self, thread: _VirtualThread) -> None:
        """Note that a thread does not block any more."""
        self._parked.remove(thread)

    def _end(self) -> None:
        """End all threads. What they still do cannot reach the disk or the loop of the next run."""
        while self._parked:
            thread = self._parked.pop()
            thread.ended = True
            while thread.go_on(_GONE) is not None:
                pass


class _Wait:
    """One wait of a thread. It ends once."""

    def __init__(self, threads: VirtualThreads, thread: _VirtualThread) -> None:
        self._threads = threads
        self._thread = thread
        self._beginning = True
        self._ended = False
        self.value: Any = None

    def end(self, value: Any) -> None:
        """End the wait, unless it has ended, or its process has."""
        if self._ended or self._thread.ended:
            return
        self._ended, self.value = True, value
        if not self._beginning:
            self._threads.resume(self._thread, value)

    def ended_at_once(self) -> bool:
        """Return whether the wait ended while it began. From now on ``end`` lets the thread go on."""
        self._beginning = False
        if self._ended:
            self._threads.unpark(self._thread)
        return self._ended


class _VirtualThread:
    """One thread. It and the thread of the simulation run in turn."""

    def __init__(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._work = work
        self._done = done
        self._may_run = threading.Semaphore(0)
        self._has_stopped = threading.Semaphore(0)
        self._value: Any = None
        self._begin: Callable[[Resume], None] | None = None
        self._result: Any = None
        self._raised: BaseException | None = None
        self._thread: threading.Thread | None = None
        self.ended = False

    def go_on(self, value: Any) -> Callable[[Resume], None] | None:
        """Let the thread run. Return what begins its next wait, or ``None`` if it has ended."""
        self._value, self._begin = value, None
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="virtual", daemon=True)
            self._thread.start()
        else:
            self._may_run.release()
        self._has_stopped.acquire()
        return self._begin

    def finish(self) -> None:
        """Report how the thread has ended."""
        self.ended = True
        if self._raised is not None:
            raise self._raised
        self._done(self._result)

    def block(self, begin: Callable[[Resume], None]) -> Any:
        """Stop the thread, which is the calling one, until ``go_on`` is called. Return the value given there."""
        if self.ended:
            return _GONE
        self._begin = begin
        self._has_stopped.release()
        self._may_run.acquire()
        return self._value

    def _run(self) -> None:
        try:
            self._result = self._work()
        except (StelaeError, OSError) as error:
            self._result = error
        except BaseException as raised:
            self._raised = raised
        self._has_stopped.release()


class VirtualCalls:
    """How virtual threads reach the loop of their process: ``ThreadCalls`` in virtual time."""

    def __init__(self, process: Process, threads: VirtualThreads) -> None:
        self._process = process
        self._threads = threads
        self._stopping = False

    def stop(self) -> None:
        """Let every later ``call`` fail."""
        self._stopping = True

    def post(self, work: Callable[[], None]) -> bool:
        """Run ``work`` on the loop, soon. Return false if the process has ended."""
        if self._process.alive:
            self._process.schedule(HOP_US, "posted", work)
        return self._process.alive

    def queue(self) -> Answers:
        """Return a queue on which a virtual thread waits for the loop."""
        return _VirtualQueue(self._process, self._threads)

    def call(self, begin: Begin, discard: Callable[[Any], None] = lambda result: None) -> Any:
        """Run ``begin`` on the loop and return what it passes to its argument, as ``LoopCalls.call`` does."""
        if self._stopping:
            raise Unavailable("the node is stopping")
        result = self._threads.block(lambda resume: _Call(begin, discard, resume).start(self._process))
        if isinstance(result, Exception):
            raise result
        return result


class _Call:
    """One call of a virtual thread to the loop."""

    def __init__(self, begin: Begin, discard: Callable[[Any], None], resume: Resume) -> None:
        self._begin = begin
        self._discard = discard
        self._resume = resume
        self._late = False

    def start(self, process: Process) -> None:
        """Begin on the loop, a moment later."""
        process.schedule(HOP_US, "called", self._run)
        process.schedule(int(WAIT_S_MAX * 1_000_000), "call.late", self._give_up)

    def _run(self) -> None:
        try:
            self._begin(self._end)
        except Exception as error:
            self._end(error)

    def _end(self, result: Any) -> None:
        if not self._late:
            self._resume(result)
        elif not isinstance(result, Exception):
            self._discard(result)

    def _give_up(self) -> None:
        self._late = True
        self._resume(Unavailable(f"no answer for {WAIT_S_MAX:.0f} s"))


class _VirtualQueue:
    """A queue from the loop to one virtual thread (``Answers``)."""

    def __init__(self, process: Process, threads: VirtualThreads) -> None:
        self._process = process
        self._threads = threads
        self._items: deque[Any] = deque()
        self._waiting: Resume | None = None

    def put(self, item: Any) -> None:
        """Add an item, and wake the thread that waits."""
        self._items.append(item)
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting(None)

    def get(self, *, timeout: float) -> Any:
        """Return the oldest item. Blocks for at most this many virtual seconds, then raises ``Empty``."""

        def begin(resume: Resume) -> None:
            self._waiting = resume
            self._process.schedule(int(timeout * 1_000_000), "queue.timeout", lambda: resume(None))

        if not self._items:
            self._threads.block(begin)
        return self.get_nowait()

    def get_nowait(self) -> Any:
        """Return the oldest item, or raise ``Empty``."""
        if not self._items:
            raise Empty
        return self._items.popleft()


class ThreadedPool(VirtualPool):
    """A virtual pool whose work may block, on virtual threads. It also takes work without a key, as ``Workers`` do."""

    def __init__(
        self,
        process: Process,
        threads: VirtualThreads,
        rng: random.Random,
        label: str,
        duration_us: Callable[[], DurationRange],
    ) -> None:
        super().__init__(process, rng, label, duration_us)
        self._threads = threads
        self._pieces = 0

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None] | None = None) -> None:
        """Run ``work`` independently of all other work, then ``done(result)`` on the loop."""
        self._pieces += 1
        self.run(f"piece/{self._pieces}", work, done or (lambda _result: None))

    def _work(self, key: str) -> None:
        work, done = self._queues[key][0]
        self._threads.run(work, lambda result: self._done(key, done, result))
