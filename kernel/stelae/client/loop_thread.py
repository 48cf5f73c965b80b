"""Runs an event loop in a thread, for callers without an event loop."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from stelae.spi.errors import Unavailable

_Result = TypeVar("_Result")

JOIN_S = 5.0
"""How long closing waits for the thread, in seconds."""

_FORKED = "the client was made before this process was forked; connect again in this process"

_open: weakref.WeakSet[LoopThread] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Mark all loops as closed when the program ends. Their threads stop at once then, so later clean-up must not wait
    for them."""
    for loop_thread in _open:
        loop_thread.closed = True


class LoopThread:
    """Runs coroutines for any thread. Its own thread is a daemon, so a client that was not closed does not keep the
    program from ending."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="stelae-client", daemon=True)
        self._thread.start()
        self._process = os.getpid()
        # Each coroutine is on the loop before ``close`` cancels all. A garbage collection may run one meanwhile, in the
        # same thread.
        self._submitting = threading.RLock()
        self.closed = False
        """Whether it accepts no more coroutines."""
        _open.add(self)

    @property
    def is_usable(self) -> bool:
        """Whether this process can run a coroutine on it."""
        return not self.closed and os.getpid() == self._process and self._thread.is_alive()

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine, and return its result or raise its error.

        Ctrl-C cancels the coroutine. A write that is cancelled may still take effect, once.

        Raises:
            Unavailable: the client is closed, belongs to another process, or is called from its own thread.
        """
        future = self._submit(work)
        try:
            return future.result()
        except CancelledError as error:
            raise Unavailable("the client was closed during the call") from error
        except BaseException:
            future.cancel()
            raise

    def check_process(self) -> None:
        """Raise ``Unavailable`` in a forked process, where no coroutine would ever run."""
        if os.getpid() != self._process:
            raise Unavailable(_FORKED)

    def _submit(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        problem = ""
        if os.getpid() != self._process:  # First: another thread may have held the lock when the process was forked.
            problem = _FORKED
        elif threading.current_thread() is self._thread:
            problem = "a synchronous call from the client's own thread would wait for itself"
        else:
            with self._submitting:
                if not self.closed:
                    return asyncio.run_coroutine_threadsafe(work, self.loop)
        work.close()
        raise Unavailable(problem or "the client is closed")

    def each(
        self, items: AsyncGenerator[_Result, None], put_back: Callable[[], None] = lambda: None
    ) -> Iterator[_Result]:
        """Yield the items of an asynchronous generator, none of which is ``None``. It is closed at the end.

        Args:
            items: the generator.
            put_back: called after Ctrl-C if the generator has yielded an item that this one has not.
        """
        step: asyncio.Task[Any] | None = None
        has_item = False

        async def next_item() -> _Result | None:
            nonlocal step, has_item
            step, has_item = asyncio.current_task(), False
            item = await anext(items, None)
            has_item = item is not None
            return item

        async def close() -> None:
            if step is not None and not step.done():
                # After Ctrl-C the step is cancelled, but takes a few turns to end. A generator that runs cannot close.
                step.cancel()
                await asyncio.wait([step])
            await items.aclose()

        try:
            while (item := self.run(next_item())) is not None:
                has_item = False
                yield item
        finally:
            if not self.closed:
                self.run(close())
            if has_item:
                put_back()

    def close(self) -> None:
        """Cancel the coroutines that run, and end the thread. A second call has no effect."""
        with self._submitting:
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
