"""The real ``Workers``: a bounded pool of threads with a bounded queue."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stelae.spi.errors import Overloaded, Unavailable

log = logging.getLogger(__name__)


class WorkerPool:
    """Runs work that may block or compute long. Order between pieces of work is not kept.

    Args:
        threads_max: threads of the pool.
        name: prefix of their names.
        post: runs a call on the event loop, from any thread.
        queue_count_max: pieces of work that may wait or run at once.
    """

    def __init__(
        self,
        threads_max: int,
        name: str,
        post: Callable[[Callable[[], None]], None],
        *,
        queue_count_max: int = 10_000,
    ) -> None:
        self._executor = ThreadPoolExecutor(threads_max, thread_name_prefix=name)
        self._post = post
        self._lock = threading.Lock()
        self._pending = 0
        self._queue_count_max = queue_count_max
        self._closed = False

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None] | None = None) -> None:
        """Run ``work`` on a thread, later ``done(result)`` on the loop; callable from any thread.

        If ``work`` raises, the exception is the result. Never raises itself: when the queue is
        full the result is ``Overloaded``, after ``close`` it is ``Unavailable``.
        """
        with self._lock:
            refusal = self._refusal()
            if refusal is None:
                self._pending += 1
                self._executor.submit(self._run, work, done)
        if refusal is not None:
            self._finish(refusal, done)

    def close(self) -> None:
        """Finish what was taken and end the threads; blocks. Closing twice is harmless."""
        with self._lock:
            self._closed = True
        self._executor.shutdown(wait=True)

    def _refusal(self) -> Exception | None:
        if self._closed:
            return Unavailable("the node is stopping; its workers take nothing new")
        if self._pending >= self._queue_count_max:
            return Overloaded(f"{self._pending} pieces of background work are waiting already")
        return None

    def _run(self, work: Callable[[], Any], done: Callable[[Any], None] | None) -> None:
        try:
            result = work()
        except Exception as error:
            result = error
        with self._lock:
            self._pending -= 1
        self._finish(result, done)

    def _finish(self, result: Any, done: Callable[[Any], None] | None) -> None:
        if done is not None:
            self._post(lambda: done(result))
        elif isinstance(result, Exception):
            log.warning("background work failed and nobody waits for it", exc_info=result)
