"""An event loop in a thread of its own, for callers who have none."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from stelae.spi.errors import Unavailable

_Result = TypeVar("_Result")

JOIN_S = 5.0
"""How long closing waits for the thread."""


_open: weakref.WeakSet[LoopThread] = weakref.WeakSet()


@atexit.register
def _nobody_waits() -> None:
    """When a program ends the loops' threads stop where they are: what is cleaned up later must not wait for them."""
    for portal in _open:
        portal.closed = True


class LoopThread:
    """Runs coroutines for any thread. The thread is a daemon: a forgotten client keeps no program from ending."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="stelae-client", daemon=True)
        self._thread.start()
        self._process = os.getpid()
        self.closed = False
        """Whether nothing is run any more."""
        _open.add(self)

    @property
    def is_usable(self) -> bool:
        """Whether this process can have something run."""
        return not self.closed and os.getpid() == self._process and self._thread.is_alive()

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Carry a coroutine out and return what it returns, or raise what it raises.

        Ctrl-C cancels it: a write may then still take effect, once.

        Raises:
            Unavailable: the portal is closed.
        """
        if self.closed:
            work.close()
            raise Unavailable("the client is closed")
        if os.getpid() != self._process:
            work.close()
            raise Unavailable("the client was made by another process, of which this one is a fork; connect again here")
        if threading.current_thread() is self._thread:
            work.close()
            raise Unavailable("a synchronous call from the client's own thread would wait for itself")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except CancelledError as error:
            raise Unavailable("the client was closed meanwhile") from error
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what runs and end the thread. Closing twice is harmless."""
        if self.closed:
            return
        self.closed = True
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self.loop).result(JOIN_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(JOIN_S)
        if not self._thread.is_alive():
            self.loop.close()

    async def _cancel_all(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.loop.shutdown_asyncgens()
