"""Durable writes without a thread: submitted to ``io_uring`` on the event loop, which is called when they are done.

A log thread costs each commit two switches of the interpreter lock and two wake-ups: 83 us of the 540 to 630 us that a
group of 64 entries of 4 KiB took (ADR 49)."""

import asyncio
import errno
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from stelae.host.ports import BlockingPool
from stelae.machine.fast_log.direct_io import Arena, ArenaRange, DirectDescriptors
from stelae.machine.fast_log.io_uring import IoUring
from stelae.machine.files import RealFile, write_error
from stelae.spi.errors import StorageError
from stelae.spi.wal import Write

ENTRIES = 1024
"""Writes under way at once: a group has one for each tablet, with engines that keep a file for each."""

BYTES_MAX = 2 << 20
"""Of one write: the event loop encodes and copies it, and does nothing else meanwhile. A group of 256 entries of 4 KiB
is committed half as often again as by a thread."""

ARENA_BYTES = 16 << 20
"""Memory for direct writes; see ``Arena`` for the size. A write that finds no room goes through the cache."""

WAIT_S = 0.001
"""Between two looks at what is under way, when a node stops."""

_RETRYABLE = {errno.EAGAIN, errno.EINTR, errno.ECANCELED, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOMEM, errno.ENOBUFS}
"""Answers that say of the call, and not of the disk, that it did not happen."""

Failures: TypeAlias = Sequence[StorageError | None]

log = logging.getLogger(__name__)


class RingWrites:
    """Writes to ``RealFile`` by the system, on one event loop.

    Args:
        pool: where a write is made again that the system did in part or not at all.
        on_defect: called with what nobody may raise where an answer is dealt with; those writes are never told of."""

    def __init__(
        self,
        ring: IoUring,
        loop: asyncio.AbstractEventLoop,
        pool: BlockingPool,
        on_defect: Callable[[BaseException], None],
    ) -> None:
        self._on_defect = on_defect
        self._ring = ring
        self._loop = loop
        self._pool = pool
        self._arena = Arena(ARENA_BYTES)
        self._direct = DirectDescriptors()
        self._tokens = itertools.count(1)
        self._waiting: dict[int, _PendingWrite] = {}
        self._unreported: set[_WriteBatch] = set()
        self._retrying: set[object] = set()
        self._unmade: list[tuple[_WriteBatch, int]] = []
        self._closing = False
        self._answers_lock = (
            threading.Lock()
        )  # Held while answers are dealt with, for ``wait`` to come before or behind.
        loop.add_reader(ring.fileno(), self._answered)

    def begin(self, writes: Sequence[Write], done: Callable[[Failures], None]) -> bool:
        """Begin these writes; ``done`` once, on the loop, with what became of each, when nothing of it is under way.

        Returns:
            false: nothing was begun, as they are of other files, too many or too long."""
        if len(writes) + self._ring.under_way > self._ring.entries:
            return False
        files, sizes = [], []
        for write in writes:
            sizes.append(sum(map(len, write.buffers)))
            if not isinstance(write.file, RealFile) or sizes[-1] > BYTES_MAX:
                return False
            files.append(write.file)
        calls = [(next(self._tokens), *self._call(*one)) for one in zip(writes, files, strict=True)]
        begun = self._ring.write(calls)
        batch = _WriteBatch(writes, sizes, self._reporter(done)) if begun else None
        if batch is not None:
            self._unreported.add(batch)
        for at, (token, _, data, _) in enumerate(calls):
            if batch is not None and at < begun:
                self._waiting[token] = _PendingWrite(batch, at, files[at], data)
                continue
            if isinstance(data, ArenaRange):
                data.arena.give_back()
            if batch is not None:
                self._retry(batch, at)
        return batch is not None

    def _call(self, write: Write, file: RealFile) -> tuple[int, bytes | ArenaRange, int]:
        """How a write is made: directly if it may be and can be, else through the cache."""
        data = b"".join(write.buffers)
        fd = self._direct.of(file) if write.whole_blocks else -1
        lent = self._arena.lend(data) if fd >= 0 else None
        return (file.fileno(), data, write.offset) if lent is None else (fd, lent, write.offset)

    def _reporter(self, done: Callable[[Failures], None]) -> "Callable[[_WriteBatch], None]":
        def tell(batch: _WriteBatch) -> None:
            self._unreported.discard(batch)
            done(batch.failures)

        return tell

    def wait(self) -> list[Failures]:
        """Block until every write is over; what the system did not do is made here. Nobody begins one from now on. Any
        thread, the loop's too.

        Returns:
            for each ``done`` that was not called, what became of its writes."""
        with self._answers_lock:
            self._closing = True
        while self._retrying or not self._ring.is_over():
            time.sleep(WAIT_S)
        with self._answers_lock:
            for token, result in self._ring.answers():
                batch, at, _, _ = self._waiting.pop(token)
                if result < 0 and -result not in _RETRYABLE:
                    batch.failures[at] = batch.failure(at, result)
                elif result != batch.sizes[at]:
                    self._unmade.append((batch, at))
            for batch, at in self._unmade:
                batch.failures[at] = batch.writes[at].failure()
            self._unmade.clear()
            return [tuple(batch.failures) for batch in self._unreported]

    def close(self) -> None:
        """Stop; on the loop. ``done`` is called no more."""
        if self._ring.fileno() >= 0:
            self._loop.remove_reader(self._ring.fileno())
        self._ring.close()

    def _answered(self) -> None:
        try:
            with self._answers_lock:
                self._take()
        except Exception as error:
            log.exception("an answer of io_uring could not be dealt with")
            self._on_defect(error)

    def _take(self) -> None:
        for token, result in self._ring.answers():
            batch, at, file, data = self._waiting.pop(token)
            if isinstance(data, ArenaRange):
                data.arena.give_back()
                if result in (-errno.EINVAL, -errno.EOPNOTSUPP):  # Its sectors are larger, or it has no such writes.
                    self._direct.give_up(file)
            if result == batch.sizes[at]:
                batch.settle(at, None)
            elif result >= 0 or -result in _RETRYABLE:
                self._retry(batch, at)
            else:
                batch.settle(at, batch.failure(at, result))

    def _retry(self, batch: "_WriteBatch", at: int) -> None:
        """Make a write off the loop, as without a ring: the same bytes in the same place."""
        if self._closing:
            self._unmade.append((batch, at))
            return
        this = object()
        self._retrying.add(this)

        def make() -> StorageError | None:
            try:
                # ``wait`` may be over before anybody is told.
                failure = batch.failures[at] = batch.writes[at].failure()
                return failure
            finally:
                self._retrying.discard(this)

        try:
            self._pool.run("ring", make, lambda failure: self._settle(batch, at, failure))
        except BaseException:
            self._retrying.discard(this)
            raise

    def _settle(self, batch: "_WriteBatch", at: int, failure: StorageError | None) -> None:
        with self._answers_lock:
            batch.settle(at, failure)


class _PendingWrite(NamedTuple):
    """A write without an answer: which one of a batch, its file, and the bytes as the system has them."""

    batch: "_WriteBatch"
    at: int
    file: RealFile
    data: bytes | ArenaRange


class _WriteBatch:
    """Writes that were begun together; ``tell`` is called when all are over."""

    def __init__(self, writes: Sequence[Write], sizes: list[int], tell: "Callable[[_WriteBatch], None]") -> None:
        self.writes = writes
        self.sizes = sizes
        self.failures: list[StorageError | None] = [None] * len(writes)
        self._tell = tell
        self._left = len(writes)

    def failure(self, at: int, result: int) -> StorageError:
        """What an answer below zero says of one of them."""
        write = self.writes[at]
        return write_error(OSError(-result, os.strerror(-result)), write.file.path, write.offset)

    def settle(self, at: int, failure: StorageError | None) -> None:
        """One of them is over; the last one's end is the end of all."""
        self.failures[at] = failure
        self._left -= 1
        if not self._left:
            self._tell(self)
