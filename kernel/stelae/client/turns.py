"""Runs the deferred calls of a client once in each turn of the event loop: first those of writers, then those of links.

asyncio runs a callback that is scheduled in one turn in the next turn, and polls the operating system in between. If
the links had a callback of their own, a message would leave one turn later than the writer made it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from stelae.spi.errors import CallerError


def check_loop(own: asyncio.AbstractEventLoop) -> None:
    """Check that a client is used on its own event loop: on another one, its answers would never be noticed.

    Raises:
        CallerError: another loop runs.
    """
    if asyncio.get_running_loop() is not own:
        fact = "the client was made on another event loop, and works only there"
        raise CallerError(f"{fact}; connect again on this one, or use the synchronous client")


class ClientTurns:
    """Defers calls to the next turn of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._first: deque[Callable[[], None]] = deque()
        self._last: deque[Callable[[], None]] = deque()
        self._due = False

    def defer(self, call: Callable[[], None]) -> None:
        """Run ``call`` in the next turn, behind the calls that were deferred before."""
        self._first.append(call)
        self._schedule()

    def defer_last(self, call: Callable[[], None]) -> None:
        """Run ``call`` in the next turn, behind all calls of :meth:`defer`, also those that are deferred meanwhile."""
        self._last.append(call)
        self._schedule()

    def _schedule(self) -> None:
        if not self._due:
            self._due = True
            self.loop.call_soon(self._run)

    def _run(self) -> None:
        first, last = self._first, self._last
        while first or last:
            try:
                (first or last).popleft()()
            except Exception as error:
                # A call that fails must not prevent the others, as with callbacks of the loop.
                self.loop.call_exception_handler({"message": "a deferred call raised", "exception": error})
        self._due = False
