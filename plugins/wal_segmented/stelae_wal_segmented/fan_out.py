"""Runs tasks for many logs in parallel: a group over a hundred tablets has a hundred files to sync.

A sync waits for the disk, so several threads finish sooner than one. The engine has no threads of its own. It asks the
node's background workers to help, and does the tasks itself meanwhile. It never waits for a worker to begin. A worker
that is busy, overloaded or stopped finds no task left when it begins, and its call ends."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from stelae.spi.services import Workers

Task: TypeAlias = Callable[[], None]

ALONE_MAX = 2
"""Up to this many tasks are done without help, because waking a worker costs half a sync."""


class FanOut:
    """Runs tasks on the calling thread and on idle workers.

    Tasks begin in the given order. A task must not use what another one changes. ``run`` is called from one thread at a
    time.

    Args:
        workers: the node's background pool.
        threads_max: number of threads, the calling one included.
    """

    def __init__(self, workers: Workers, threads_max: int) -> None:
        self._workers = workers
        self._helpers_max = threads_max - 1
        self._waiting: deque[Task] = deque()
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._running = 0
        self._helpers = 0
        self._failure: BaseException | None = None

    def run(self, tasks: Sequence[Task]) -> None:
        """Run every task. On return no task is waiting or under way.

        If a task raises, the error is raised here once no other task is under way. Tasks that have not begun by then
        are not run. A task must handle operating errors itself."""
        if len(tasks) <= ALONE_MAX or not self._helpers_max:
            for task in tasks:
                task()
            return
        with self._lock:
            self._waiting.extend(tasks)
            wanted = min(self._helpers_max - self._helpers, len(tasks) - 1)
            self._helpers += wanted
        for _ in range(wanted):
            self._workers.submit(partial(self._help, helper=True), self._answered)
        self._help(helper=False)
        with self._lock:
            while self._running:
                self._idle.wait()
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _help(self, *, helper: bool) -> None:
        """Run tasks until none is waiting; on any thread. A helper stops counting as one here and not in ``_answered``,
        because the next group may arrive before the pool reports that the helper's call has ended."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._helpers -= helper
                    return
                task = self._waiting.popleft()
                self._running += 1
            failure: BaseException | None = None
            try:
                task()
            except BaseException as error:
                failure = error
            with self._lock:
                self._running -= 1
                if failure is not None:
                    self._waiting.clear()
                    self._failure = self._failure or failure
                if not self._running:
                    self._idle.notify()

    def _answered(self, result: object) -> None:
        """Count a helper that never began, because the pool took no more work. A helper that ran has counted itself."""
        if isinstance(result, BaseException):
            with self._lock:
                self._helpers -= 1
