"""Calls from another thread to the event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias

from stelae.spi.errors import Unavailable

WAIT_S_MAX = 60.0
"""The longest time to wait for the loop. A replica that fails or stops may never answer."""

_LOOK_S = 0.5

Begin: TypeAlias = Callable[[Callable[[Any], None]], None]
"""Begins work on the loop. It calls its argument once, with the result or an exception."""


class Answers(Protocol):
    """A queue from the event loop to one worker thread."""

    def put(self, item: Any) -> None:
        """Add an item. Does not block."""

    def get(self, *, timeout: float) -> Any:
        """Return the oldest item. Blocks for at most this many seconds, then raises ``queue.Empty``."""

    def get_nowait(self) -> Any:
        """Return the oldest item, or raise ``queue.Empty``."""


class ThreadCalls(Protocol):
    """How worker threads reach the event loop. The simulator has one in virtual time."""

    def stop(self) -> None:
        """Let every present and later ``call`` fail with ``Unavailable``."""

    def post(self, work: Callable[[], None]) -> bool:
        """Run ``work`` on the loop, soon. Return False, and do nothing, if the loop is closed."""

    def call(self, begin: Begin, discard: Callable[[Any], None] = ...) -> Any:
        """Run ``begin`` on the loop and return what it passes to its argument (``LoopCalls.call``)."""

    def queue(self) -> Answers:
        """Return a queue on which a worker thread waits for the loop."""


class LoopCalls:
    """Lets worker threads run code on the event loop and wait for it: a ``ThreadCalls``.

    The constructor is called on the running loop. ``stop`` ends all waits."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = False

    def stop(self) -> None:
        """Let every present and later ``call`` fail with ``Unavailable``."""
        self._stopping = True

    def post(self, work: Callable[[], None]) -> bool:
        """Run ``work`` on the loop, soon. Return False, and do nothing, if the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            return False
        return True

    def queue(self) -> Answers:
        """Return a queue on which a worker thread waits for the loop."""
        return SimpleQueue[Any]()

    def call(self, begin: Begin, discard: Callable[[Any], None] = lambda result: None) -> Any:
        """Run ``begin`` on the loop and return what it passes to its argument. Blocks; not for the loop's own thread.

        An exception is raised. Raises ``Unavailable`` if there is no result in time; ``discard`` gets a result that
        comes later, on the loop."""
        answer: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def done(result: Any) -> None:
            if not answer.set_running_or_notify_cancel():
                if not isinstance(result, Exception):
                    discard(result)
            elif isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        def run() -> None:
            try:
                begin(done)
            except Exception as error:
                done(error)

        if not self.post(run):
            raise Unavailable("the node has stopped")
        waited_s = 0.0
        while True:
            try:
                return answer.result(_LOOK_S)
            except concurrent.futures.TimeoutError:
                waited_s += _LOOK_S
                if (self._stopping or waited_s >= WAIT_S_MAX) and answer.cancel():
                    fact = "the node is stopping" if self._stopping else f"no answer for {WAIT_S_MAX:.0f} s"
                    raise Unavailable(fact) from None
