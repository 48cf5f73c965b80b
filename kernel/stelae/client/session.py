"""Sessions: rows are handed in one by one and travel in batches.

A session holds rows until it is flushed: by hand, or by itself when enough have come or some time has passed. What it
may hold is bounded. Rows take effect in the order in which they were handed in: one batch is under way at a time, and
the next one fills meanwhile."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from threading import Lock
from typing import Any

from stelae.client.arguments import flag, kind_of_write, seconds, whole
from stelae.client.batch_write import BatchWrite
from stelae.client.failures import FAILURES_MAX, FailureTally, RowFailure, RowsFailed, WriteResult
from stelae.client.key_values import is_series
from stelae.client.row_input import FrameRow
from stelae.client.session_warnings import Account, OpeningLine, caller
from stelae.client.table_writer import TableWriter
from stelae.client.writer_core import REQUEST_BYTES_MAX, TIMEOUT_S_MAX
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.ids import TabletId
from stelae.spi.write import OPS_MAX, OpKind

FINISH_S = 10.0
"""How long a session that was left open may send what it holds when its client is closed, or the program ends."""

_VALUE_BYTES = 16
"""What a value without contents of its own is taken to weigh."""


class BufferFull(CallerError, code="BUFFER_FULL"):
    """A session that is flushed by hand holds as much as it may: flush it."""


class SessionClosed(CallerError, code="SESSION_CLOSED"):
    """The session was closed; open another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """How a session flushes, and what it may hold."""

    auto_flush: bool = True  #: Else rows leave with ``flush`` and ``close`` alone.
    flush_rows: int = 1000  #: So many rows leave as one batch, at most; in time they share a round trip.
    flush_bytes: int = 1 << 20  #: Or so many bytes, estimated.
    flush_interval_s: float = 1.0  #: How long a row waits for company before it leaves.
    buffer_rows_max: int = 20_000  #: Rows held, batches under way included; more wait, or are ``BufferFull``.
    buffer_bytes_max: int = 32 << 20  #: The same in bytes.
    timeout_s: float = 30.0  #: How long a batch is retried.

    def __post_init__(self) -> None:
        flag("auto_flush", self.auto_flush)
        for name in ("flush_rows", "flush_bytes", "buffer_rows_max", "buffer_bytes_max"):
            whole(name, getattr(self, name), 1)
        seconds("flush_interval_s", self.flush_interval_s, above_0=True)
        seconds("timeout_s", self.timeout_s, above_0=True, most=TIMEOUT_S_MAX)


class _Held:
    __slots__ = ("kind", "number", "row", "size_bytes")

    def __init__(self, number: int, kind: OpKind, row: Any, size_bytes: int) -> None:
        self.number = number
        self.kind = kind
        self.row = row
        self.size_bytes = size_bytes


class Buffer:
    """Rows that wait, and room that is taken. Used from two threads by the synchronous face, hence the lock."""

    def __init__(self, options: SessionOptions) -> None:
        self._options = options
        self._lock = Lock()
        self._rows: list[_Held] = []
        self._waiting_bytes = 0
        self._held_rows = 0
        self._held_bytes = 0
        self.count = 0

    def add(self, kind: OpKind, row: Any) -> tuple[bool, bool]:
        """Take a row. Returns whether there was room, and whether the session has something to do now."""
        size_bytes, row = _weigh(row), _own(row)
        options = self._options
        with self._lock:
            full = self._held_rows >= options.buffer_rows_max or self._held_bytes >= options.buffer_bytes_max
            if full:
                return False, True
            self._rows.append(_Held(self.count, kind, row, size_bytes))
            self.count += 1
            self._held_rows += 1
            self._held_bytes += size_bytes
            self._waiting_bytes += size_bytes
            return True, len(self._rows) == 1 or self._is_due

    @property
    def _is_due(self) -> bool:
        return len(self._rows) >= self._options.flush_rows or self._waiting_bytes >= self._options.flush_bytes

    @property
    def is_due(self) -> bool:
        """Whether a whole batch is there."""
        with self._lock:
            return self._is_due

    @property
    def waiting(self) -> int:
        """Rows that have not left."""
        return len(self._rows)

    def take(self) -> list[_Held]:
        """Return the rows of the next batch; they count as held until ``release``."""
        with self._lock:
            count = size_bytes = 0
            for held in self._rows[: self._options.flush_rows]:
                count += 1
                size_bytes += held.size_bytes
                if size_bytes >= self._options.flush_bytes:
                    break
            batch, self._rows = self._rows[:count], self._rows[count:]
            self._waiting_bytes -= size_bytes
            return batch

    @property
    def held(self) -> int:
        """Rows that have not been answered."""
        return self._held_rows

    def release(self, batch: list[_Held]) -> None:
        """A batch has been answered, or was given up."""
        with self._lock:
            self._held_rows -= len(batch)
            self._held_bytes -= sum(held.size_bytes for held in batch)


def _own(row: Any) -> Any:
    """A row that stays as it is when its caller fills the same dict or list again."""
    if isinstance(row, Mapping):
        return row if type(row) is FrameRow else dict(row)
    if isinstance(row, list):
        return tuple(row)
    return row if isinstance(row, tuple) or not is_series(row) else FrameRow(row)


def _weigh(row: Any) -> int:
    values = row.values() if isinstance(row, Mapping) else row
    if not isinstance(values, Iterable):
        return _VALUE_BYTES
    return sum(_VALUE_BYTES + (len(v) if isinstance(v, str | bytes) else 0) for v in values)


class AsyncSession:
    """A session on one table. Made by ``AsyncTable.session``; used on one event loop."""

    def __init__(self, writer: TableWriter, options: SessionOptions, opened: OpeningLine | None = None) -> None:
        self._writer = writer
        self._options = options
        self._buffer = Buffer(options)
        self._loop = asyncio.get_running_loop()
        self._draining: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._room = asyncio.Event()
        self._lock = Lock()
        self._failures: list[RowFailure] = []
        self._answered = 0
        self._timestamp = 0
        self._broken: BaseException | None = None
        self.closed = False
        buffer = self._buffer
        self.account = Account(writer.name, opened or caller(), lambda: buffer.held)
        """What is to be told if nobody closes the session."""
        weakref.finalize(self, self.account.tell).atexit = False

    async def insert(self, rows: Any) -> None:
        """Hand in one row or several; a key that exists becomes a failure."""
        await self.apply(OpKind.INSERT, rows)

    async def upsert(self, rows: Any) -> None:
        """Hand in rows that are inserted, or replace the given columns of the row that exists."""
        await self.apply(OpKind.UPSERT, rows)

    async def update(self, rows: Any) -> None:
        """Hand in rows whose given columns replace those of the row that exists; a missing one becomes a failure."""
        await self.apply(OpKind.UPDATE, rows)

    async def delete(self, rows: Any) -> None:
        """Hand in keys whose rows go; a missing one becomes a failure."""
        await self.apply(OpKind.DELETE, rows)

    async def insert_ignore(self, rows: Any) -> None:
        """As ``insert``; rows that exist are left alone, without a failure."""
        await self.apply(OpKind.INSERT_IGNORE, rows)

    async def update_ignore(self, rows: Any) -> None:
        """As ``update``; rows that are missing are skipped, without a failure."""
        await self.apply(OpKind.UPDATE_IGNORE, rows)

    async def delete_ignore(self, rows: Any) -> None:
        """As ``delete``; rows that are missing are skipped, without a failure."""
        await self.apply(OpKind.DELETE_IGNORE, rows)

    async def apply(self, kind: OpKind, rows: Any) -> None:
        """Hand in one row (a dict, or a tuple) or several (a list or another iterable of these).

        Waits while the session holds as much as it may.

        Raises:
            BufferFull: it is flushed by hand, and full; rows before this one were taken.
            SessionClosed: it is closed.
        """
        for row in each_row(rows):
            while not self.try_add(kind, row):
                if not self._options.auto_flush:
                    raise BufferFull(f"the session holds {self._buffer.waiting} rows, as many as it may; flush it")
                self._room.clear()
                self._drain()
                await self._room.wait()

    def try_add(self, kind: OpKind, row: Any) -> bool:
        """Take one row if there is room. Callable from any thread: what is to be done is done on the loop."""
        if self.closed:
            raise SessionClosed("the session is closed; open another")
        kind = kind_of_write(kind)
        taken, wake = self._buffer.add(kind, row)
        if wake and self._options.auto_flush:
            self._loop.call_soon_threadsafe(self._consider)
        return taken

    async def flush(self) -> None:
        """Send what is held and wait until all of it has been answered. Failures are kept, not raised."""
        await self._emptied()
        if self._broken is not None:
            broken, self._broken = self._broken, None
            self.account.given_up = 0
            raise broken

    async def _emptied(self) -> None:
        while self._buffer.waiting or self._draining is not None:
            self._drain()
            assert self._draining is not None
            await asyncio.wait([self._draining])

    @property
    def failures(self) -> tuple[RowFailure, ...]:
        """Rows that were not taken, the first ``FAILURES_MAX`` since they were last taken away."""
        self.account.looked_at = self.account.failed
        return tuple(self._failures)

    def take_failures(self) -> WriteResult:
        """Return what has come of the rows answered since this was last asked for, and forget it."""
        with self._lock:
            failures, self._failures = self._failures, []
            failed, self.account.failed, self.account.looked_at = self.account.failed, 0, 0
            rows, self._answered = self._answered, 0
        return WriteResult(rows=rows, failed=failed, failures=tuple(failures), timestamp=self._timestamp)

    async def close(self) -> None:
        """Flush and end.

        Raises:
            RowsFailed: there are failures that nobody has taken away.
        """
        if self.closed:
            return
        await self.flush()
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        failed, self.account.is_settled = self.account.failed, True
        if failed:
            raise RowsFailed(self.take_failures())

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self.close()
        else:
            await self.abandon()

    async def abandon(self) -> None:
        """End without sending what is still held; a batch that is under way is waited for."""
        self.closed = self.account.is_settled = True
        if self._timer is not None:
            self._timer.cancel()
        while self._buffer.waiting:
            self._buffer.release(self._buffer.take())
        if self._draining is not None:
            await asyncio.wait([self._draining])

    async def finish(self, timeout_s: float) -> None:
        """End a session that was left open by whoever closes its client, or ends the program.

        What it would have sent by itself in a moment it sends now, for so many seconds at most. ``UnwrittenRows`` is
        warned of what is not written then."""
        if self._options.auto_flush and self.account.is_owing:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._emptied(), timeout_s)
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.account.tell()

    # -- on the loop -----------------------------------------------------------------------------

    def _consider(self) -> None:
        """Something has come: send it if it is enough, else see that it does not wait for ever."""
        if self._buffer.is_due:
            self._drain()
        elif self._timer is None and self._buffer.waiting and not self.closed:
            self._timer = self._loop.call_later(self._options.flush_interval_s, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._drain()

    def _drain(self) -> None:
        if self._draining is None:
            self._draining = self._loop.create_task(self._send_all())

    async def _send_all(self) -> None:
        """Send what is held, batch after batch."""
        try:
            while batch := self._buffer.take():
                is_answered = False
                try:
                    await self._send(batch)
                    is_answered = True
                finally:
                    self.account.given_up += 0 if is_answered else len(batch)
                    self._buffer.release(batch)
                    self._room.set()
        except Exception as error:
            self._broken = error  # ``flush`` raises it
            self.account.error = f"{type(error).__name__}: {error}"
        finally:
            self._draining = None

    async def _send(self, batch: list[_Held]) -> None:
        """Send one batch, in as few turns as there may be: what leaves in one is one request for each tablet."""
        writer, tallies = self._writer, []
        writes: list[tuple[BatchWrite, OpKind]] = []
        for kind, mine in groupby(batch, key=lambda held: held.kind):
            rows = [*mine]
            tally = FailureTally(writer.name, kind)
            tally.rows = rows[0].number
            tallies.append(tally)
            writes += [(planned, kind) for planned in writer.planned(kind, [held.row for held in rows], tally)]
        for together in _requests(writes):
            met: set[TabletId] = set()
            for planned, _ in together:
                planned.send(self._options.timeout_s, met)
            for planned, kind in together:
                await writer.settle(planned, kind, self._options.timeout_s)
        with self._lock:
            self._answered += len(batch)
            for tally in tallies:
                self.account.failed += tally.failed
                self._failures += tally.result().failures[: FAILURES_MAX - len(self._failures)]
                self.account.reason = str(self._failures[0]) if self._failures else ""
                self._timestamp = max(self._timestamp, tally.timestamp)


def _requests(writes: Iterable[tuple[BatchWrite, OpKind]]) -> Iterator[list[tuple[BatchWrite, OpKind]]]:
    """Divide batches, in their order, into those that may share a request."""
    together: list[tuple[BatchWrite, OpKind]] = []
    size_bytes = operations = 0
    for planned, kind in writes:
        size_bytes, operations = size_bytes + planned.size_bytes, operations + planned.operations
        if together and (size_bytes > REQUEST_BYTES_MAX or operations > OPS_MAX):
            yield together
            together, size_bytes, operations = [], planned.size_bytes, planned.operations
        together.append((planned, kind))
    yield together


def each_row(rows: Any) -> Iterable[Any]:
    """The rows of what was handed to a session.

    Raises:
        SchemaMismatch: it is a frame, which the table itself takes.
    """
    if isinstance(rows, Mapping | tuple) or is_series(rows):
        return (rows,)
    family = type(rows).__module__.partition(".")[0]
    if family in ("pandas", "polars", "pyarrow") or isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise SchemaMismatch(f"a session takes rows, not a {type(rows).__name__}; hand frames to the table itself")
    return rows
