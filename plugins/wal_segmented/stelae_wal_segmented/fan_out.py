"""Work on many logs at once: a group over a hundred tablets is a hundred files to sync.

Syncs wait for the disk, so several threads get through them sooner than one. The engine has no
threads of its own: it asks the node's background workers to help, and does the work itself
meanwhile. Nothing waits for help that does not come: a worker that is busy, overloaded or stopped
finds nothing left to do when it comes at last, and its call is over."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from stelae.spi.services import Workers

Piece: TypeAlias = Callable[[], None]

ALONE_MAX = 2
"""So many pieces, or fewer, are done without help: waking a worker costs half a sync."""


class FanOut:
    """Runs pieces of work on the calling thread and on idle workers beside it.

    Pieces begin in the order given, and must not touch what another one changes. ``run`` is called
    from one thread at a time.

    Args:
        workers: the node's background pool.
        threads_max: threads at once, the calling one included.
    """

    def __init__(self, workers: Workers, threads_max: int) -> None:
        self._workers = workers
        self._helpers_max = threads_max - 1
        self._waiting: deque[Piece] = deque()
        self._lock = threading.Lock()
        self._settled = threading.Condition(self._lock)
        self._in_hand = 0
        self._helpers = 0
        self._broken: BaseException | None = None

    def run(self, pieces: Sequence[Piece]) -> None:
        """Do every piece; on return none is waiting or under way.

        What a piece raises is raised here, once no other is under way; pieces that had not begun
        by then are not done. Pieces keep operating errors to themselves."""
        if len(pieces) <= ALONE_MAX or not self._helpers_max:
            for piece in pieces:
                piece()
            return
        with self._lock:
            self._waiting.extend(pieces)
            wanted = min(self._helpers_max - self._helpers, len(pieces) - 1)
            self._helpers += wanted
        for _ in range(wanted):
            self._workers.submit(partial(self._help, helper=True), self._answered)
        self._help(helper=False)
        with self._lock:
            while self._in_hand:
                self._settled.wait()
            broken, self._broken = self._broken, None
        if broken is not None:
            raise broken

    def _help(self, *, helper: bool) -> None:
        """Do pieces until none is waiting, on any thread. A helper counts until then, and no longer: the next group may
        come before the pool has said that its call is over."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._helpers -= helper
                    return
                piece = self._waiting.popleft()
                self._in_hand += 1
            broken: BaseException | None = None
            try:
                piece()
            except BaseException as error:
                broken = error
            with self._lock:
                self._in_hand -= 1
                if broken is not None:
                    self._waiting.clear()
                    self._broken = self._broken or broken
                if not self._in_hand:
                    self._settled.notify()

    def _answered(self, result: object) -> None:
        """A helper has left, or never came: the pool took no more work."""
        if isinstance(result, BaseException):
            with self._lock:
                self._helpers -= 1
