"""Threads for work that may block or take long."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from stelae.spi.errors import Overloaded, Unavailable

log = logging.getLogger(__name__)

_STOPPING = "the node is stopping; its workers take nothing new"

Work: TypeAlias = Callable[[], Any]
Done: TypeAlias = Callable[[Any], None]
Post: TypeAlias = Callable[[Callable[[], None]], None]


class WorkerPool:
    """A bounded pool of threads: ``Workers`` for engines, ``BlockingPool`` for replicas. Any thread.

    No method raises. If ``work`` raises, the exception is its result. After ``close`` the result is ``Unavailable``.

    Args:
        threads_max: number of threads.
        name: of the pool.
        post: runs a call on the event loop, from any thread.
        queue_count_max: number of calls of ``submit`` that may wait or run at once."""

    def __init__(self, threads_max: int, name: str, post: Post, *, queue_count_max: int = 10_000) -> None:
        self.name = name
        self._executor = ThreadPoolExecutor(threads_max, thread_name_prefix=name)
        self._post = post
        self._lock = threading.Lock()
        self._pending = 0
        self._queue_count_max = queue_count_max
        self._keys: dict[str, deque[tuple[Work, Done]]] = {}
        self._closed = False

    @property
    def waiting(self) -> int:
        """Number of calls that wait for a thread or run."""
        return self._pending + sum([len(works) for works in list(self._keys.values())])

    def submit(self, work: Work, done: Done | None = None) -> None:
        """Run ``work`` on a thread, then ``done(result)`` on the loop. ``Overloaded``: the queue is full."""
        with self._lock:
            if not self._closed and self._pending < self._queue_count_max:
                self._pending += 1
                self._start(self._run, work, done)
                return
            fact = f"{self._pending} pieces of background work are waiting already"
        self._tell(Unavailable(_STOPPING) if self._closed else Overloaded(fact), done)

    def run(self, key: str, work: Work, done: Done) -> None:
        """Run ``work`` after earlier work with the same key, then ``done(result)`` on the loop.

        Work with different keys runs in parallel. Callers bound the number of calls."""
        with self._lock:
            if not self._closed:
                waiting = self._keys.setdefault(key, deque())
                waiting.append((work, done))
                if len(waiting) == 1:
                    self._start(self._drain, waiting, key)
                return
        self._tell(Unavailable(_STOPPING), done)

    def close(self) -> None:
        """Finish the accepted work and end the threads. Blocks. Closing twice is harmless.

        The log names the work for which it waits. If that never ends, only SIGKILL ends the process."""
        with self._lock:
            self._closed = True
            left = [f"{len(works)} of {key}" for key, works in self._keys.items()]
            left += [f"{self._pending} of engines"] if self._pending else []
        if left:
            log.info("the node stops after the work of its pool %s: %s", self.name, ", ".join(left[:10]))
        self._executor.shutdown(wait=True)

    def _start(self, call: Callable[..., None], *arguments: Any) -> None:
        """Run ``call`` on a thread. If the system allows no further one, the next thread that is free runs it.

        The executor has queued the call before it starts a thread."""
        try:
            self._executor.submit(call, *arguments)
        except RuntimeError as error:
            log.warning("pool %s gets no further thread, its work waits for those that it has: %s", self.name, error)

    def _run(self, work: Work, done: Done | None) -> None:
        result = _outcome(work)
        with self._lock:
            self._pending -= 1
        self._tell(result, done)

    def _drain(self, waiting: deque[tuple[Work, Done]], key: str) -> None:
        """Run the work of a key until none is left. Running work stays in the queue, so no second thread is started."""
        while waiting:
            work, done = waiting[0]
            self._tell(_outcome(work), done)
            with self._lock:
                waiting.popleft()
                if not waiting:
                    del self._keys[key]

    def _tell(self, result: Any, done: Done | None) -> None:
        if done is not None:
            self._post(lambda: done(result))
        elif isinstance(result, Exception):
            log.warning("background work failed; no caller waits for its result", exc_info=result)


def _outcome(work: Work) -> Any:
    try:
        return work()
    except Exception as error:
        return error
    except BaseException as error:  # Such as SystemExit of an engine: without a result, its key would wait forever.
        failure = RuntimeError(f"the work raised {error!r}")
        failure.__cause__ = error
        return failure
