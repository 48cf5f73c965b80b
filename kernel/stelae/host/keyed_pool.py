"""A bounded pool of threads that keeps order per key."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

_Item: TypeAlias = tuple[Callable[[], Any], Callable[[Any], None]]


class KeyedPool:
    """``BlockingPool``: work of one key runs one at a time, in order; keys run side by side.

    Args:
        threads_max: threads of the pool.
        name: prefix of their names.
        post: runs a call on the event loop, from any thread.
    """

    def __init__(
        self, threads_max: int, name: str, post: Callable[[Callable[[], None]], None]
    ) -> None:
        self._executor = ThreadPoolExecutor(threads_max, thread_name_prefix=name)
        self._post = post
        self._lock = threading.Lock()
        self._queues: dict[str, deque[_Item]] = {}

    def run(self, key: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run ``work``, then ``done(result)`` on the loop; an exception is the result."""
        with self._lock:
            waiting = self._queues.get(key)
            if waiting is not None:
                waiting.append((work, done))
                return
            self._queues[key] = deque([(work, done)])
        self._executor.submit(self._drain, key)

    def close(self) -> None:
        """Finish what was taken and end the threads; blocks."""
        self._executor.shutdown(wait=True)

    def _drain(self, key: str) -> None:
        while True:
            with self._lock:
                waiting = self._queues[key]
                if not waiting:
                    del self._queues[key]
                    return
                work, done = waiting.popleft()
            self._finish(work, done)

    def _finish(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        try:
            result = work()
        except Exception as error:
            result = error
        self._post(lambda: done(result))
