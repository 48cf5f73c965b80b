"""The work beside the writes of a copy, on a thread: ``lifecycle.side_work`` as servers do it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from stelae.lifecycle.side_work import WAITING_MAX


class BackgroundWork:
    """A ``SideWork`` on a thread of its own, which runs from the first ``begin`` to ``wait``."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._begun: deque[Future[None]] = deque()

    def begin(self, work: Callable[[], None]) -> None:
        """Leave the work to the thread."""
        while self._begun and (self._begun[0].done() or len(self._begun) >= WAITING_MAX):
            self._begun.popleft().result()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="copy-side-work")
        self._begun.append(self._thread.submit(work))

    def wait(self) -> None:
        """Wait for the thread, and end it."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown()
        begun, self._begun = self._begun, deque()
        for one in begun:
            one.result()
