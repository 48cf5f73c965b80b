"""What one round of the event loop asks for is done in the next one: writers send first, then links, once each.

asyncio keeps what is asked for during a round for the next, and asks the operating system for events in between. So a
link that were flushed by a callback of its own would leave a round later than the writers that filled it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class ClientTurns:
    """The rounds of one loop, as the client's parts use them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._first: deque[Callable[[], None]] = deque()
        self._last: deque[Callable[[], None]] = deque()
        self._due = False

    def defer(self, call: Callable[[], None]) -> None:
        """Run in the next round, in order."""
        self._first.append(call)
        self._schedule()

    def defer_last(self, call: Callable[[], None]) -> None:
        """Run in the next round, after everything that was deferred; what is deferred meanwhile goes first."""
        self._last.append(call)
        self._schedule()

    def _schedule(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        first, last = self._first, self._last
        while first or last:
            try:
                (first or last).popleft()()
            except Exception as error:
                # As the loop would have it: one that fails keeps no other from running.
                self._loop.call_exception_handler({"message": "a deferred call raised", "exception": error})
        self._due = False
