"""Sessions: they take single rows, and send many of them in one request.

A session buffers rows until it is flushed: by a call, or by itself when it has enough rows or some time has passed. The
buffer is bounded. Rows take effect in the order in which they were handed in: the session sends the rows of one flush,
waits for the answers, and then sends the next ones, while further rows are buffered."""

from __future__ import annotations

import asyncio
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from threading import Lock
from typing import Any

from stelae.client.arguments import BadArgument, flag, kind_of_write, seconds, whole
from stelae.client.failures import FAILURES_MAX, FailureTally, RowFailure, RowsFailed, WriteResult
from stelae.client.key_values import is_series
from stelae.client.planned_write import PlannedWrite
from stelae.client.row_input import FrameRow
from stelae.client.session_warnings import OpeningLine, UnreportedRows, opening_line
from stelae.client.table_writer import TableWriter
from stelae.client.writer_core import REQUEST_BYTES_MAX, TIMEOUT_S_MAX
from stelae.spi.errors import CallerError, SchemaMismatch, StelaeError
from stelae.spi.ids import TabletId
from stelae.spi.write import OPS_MAX, OpKind

FINISH_S = 10.0
"""Seconds for which a session that was left open may send its rows when its client is closed, or the program ends."""

_VALUE_BYTES = 16
"""Estimated bytes of a value, without the contents of text and bytes."""


class BufferFull(CallerError, code="BUFFER_FULL"):
    """The buffer of a session without automatic flushes is full: flush the session."""


class SessionClosed(CallerError, code="SESSION_CLOSED"):
    """The session was closed; open another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """When a session flushes, and how much it buffers."""

    auto_flush: bool = True  #: Whether the session sends rows by itself. Else only ``flush`` and ``close`` send them.
    flush_rows: int = 1000  #: The session sends rows when it has this many. It sends at most this many at a time.
    flush_bytes: int = 1 << 20  #: It also sends rows when they have this many bytes, estimated.
    flush_interval_s: float = 1.0  #: The longest time that a row waits for more rows before it is sent.
    buffer_rows_max: int = 20_000  #: The most rows without an answer. More wait, or raise ``BufferFull``.
    buffer_bytes_max: int = 32 << 20  #: The most bytes of rows without an answer, estimated.
    timeout_s: float = 30.0  #: How long rows are retried.

    def __post_init__(self) -> None:
        flag("auto_flush", self.auto_flush)
        for name in ("flush_rows", "flush_bytes", "buffer_rows_max", "buffer_bytes_max"):
            whole(name, getattr(self, name), 1)
        seconds("flush_interval_s", self.flush_interval_s, above_0=True)
        seconds("timeout_s", self.timeout_s, above_0=True, most=TIMEOUT_S_MAX)


def checked_options(options: SessionOptions | None) -> SessionOptions:
    """Return the options of a session; ``None``: the defaults. Raises ``BadArgument`` if they are something else."""
    if options is not None and not isinstance(options, SessionOptions):
        raise BadArgument("options", "SessionOptions, or None", options)
    return options or SessionOptions()


class _BufferedRow:
    """A row without an answer. ``number`` is its position in the session."""

    __slots__ = ("kind", "number", "row", "size_bytes")

    def __init__(self, number: int, kind: OpKind, row: Any, size_bytes: int) -> None:
        self.number = number
        self.kind = kind
        self.row = row
        self.size_bytes = size_bytes


class RowBuffer:
    """The rows of a session without an answer: those to be sent, and those in flight.

    The synchronous client uses it from two threads, so it has a lock."""

    def __init__(self, options: SessionOptions) -> None:
        self._options = options
        self._lock = Lock()
        self._unsent: list[_BufferedRow] = []
        self._unsent_bytes = 0
        self._buffered_rows = 0
        self._buffered_bytes = 0
        self.count = 0

    def add(self, kind: OpKind, row: Any) -> tuple[bool, bool]:
        """Add a row. Returns whether there was room, and whether the session should be woken."""
        size_bytes, row = _estimated_bytes(row), _own(row)
        options = self._options
        with self._lock:
            full = self._buffered_rows >= options.buffer_rows_max or self._buffered_bytes >= options.buffer_bytes_max
            if full:
                return False, True
            self._unsent.append(_BufferedRow(self.count, kind, row, size_bytes))
            self.count += 1
            self._buffered_rows += 1
            self._buffered_bytes += size_bytes
            self._unsent_bytes += size_bytes
            return True, len(self._unsent) == 1 or self._is_due

    @property
    def _is_due(self) -> bool:
        return len(self._unsent) >= self._options.flush_rows or self._unsent_bytes >= self._options.flush_bytes

    @property
    def is_due(self) -> bool:
        """Whether there are enough rows for a flush."""
        with self._lock:
            return self._is_due

    @property
    def unsent(self) -> int:
        """Number of rows that were not sent yet."""
        return len(self._unsent)

    def take(self) -> list[_BufferedRow]:
        """Return the rows to send next. They stay counted as buffered until ``release``."""
        with self._lock:
            count = size_bytes = 0
            for buffered in self._unsent[: self._options.flush_rows]:
                count += 1
                size_bytes += buffered.size_bytes
                if size_bytes >= self._options.flush_bytes:
                    break
            rows, self._unsent = self._unsent[:count], self._unsent[count:]
            self._unsent_bytes -= size_bytes
            return rows

    @property
    def buffered(self) -> int:
        """Number of rows without an answer."""
        return self._buffered_rows

    def release(self, rows: list[_BufferedRow]) -> None:
        """Remove rows that have an answer, or were given up."""
        with self._lock:
            self._buffered_rows -= len(rows)
            self._buffered_bytes -= sum(buffered.size_bytes for buffered in rows)


def _own(row: Any) -> Any:
    """Return a copy of a row, if its caller could change it by using the same dict or list for the next row."""
    if isinstance(row, Mapping):
        return row if type(row) is FrameRow else dict(row)
    if isinstance(row, list):
        return tuple(row)
    return row if isinstance(row, tuple) or not is_series(row) else FrameRow(row)


def _estimated_bytes(row: Any) -> int:
    values = row.values() if isinstance(row, Mapping) else row
    if not isinstance(values, Iterable):
        return _VALUE_BYTES
    return sum(_VALUE_BYTES + (len(v) if isinstance(v, str | bytes) else 0) for v in values)


class AsyncSession:
    """A session on one table. Made by ``AsyncTable.session``; used on one event loop."""

    def __init__(self, writer: TableWriter, options: SessionOptions, opened: OpeningLine | None = None) -> None:
        self._writer = writer
        self._options = options
        self._buffer = RowBuffer(options)
        self._loop = asyncio.get_running_loop()
        self._sending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._room = asyncio.Event()
        self._lock = Lock()
        self._failures: list[RowFailure] = []
        self._counts: Counter[str] = Counter()
        self._answered = 0
        self._timestamp = 0
        self._error: BaseException | None = None
        self.closed = False
        buffer = self._buffer
        self.unreported = UnreportedRows(writer.name, opened or opening_line(), lambda: buffer.buffered)
        """The rows to warn of if the session is never closed."""
        weakref.finalize(self, self.unreported.warn).atexit = False

    async def insert(self, rows: Any) -> None:
        """Add new rows. A row whose key exists becomes a failure."""
        await self.apply(OpKind.INSERT, rows)

    async def upsert(self, rows: Any) -> None:
        """Add rows that are inserted, or replace the given columns of existing rows."""
        await self.apply(OpKind.UPSERT, rows)

    async def update(self, rows: Any) -> None:
        """Add rows that replace the given columns of existing rows. A key that does not exist becomes a failure."""
        await self.apply(OpKind.UPDATE, rows)

    async def delete(self, rows: Any) -> None:
        """Add keys whose rows are deleted. A key that does not exist becomes a failure."""
        await self.apply(OpKind.DELETE, rows)

    async def insert_ignore(self, rows: Any) -> None:
        """Add new rows. Rows whose key exists are skipped."""
        await self.apply(OpKind.INSERT_IGNORE, rows)

    async def update_ignore(self, rows: Any) -> None:
        """Add rows as ``update`` does. Rows whose key does not exist are skipped."""
        await self.apply(OpKind.UPDATE_IGNORE, rows)

    async def delete_ignore(self, rows: Any) -> None:
        """Add keys as ``delete`` does. Keys that do not exist are skipped."""
        await self.apply(OpKind.DELETE_IGNORE, rows)

    async def apply(self, kind: OpKind, rows: Any) -> None:
        """Add one row (a dict or a tuple), or several (a list or another iterable of these).

        Waits while the buffer is full.

        Raises:
            BufferFull: the buffer is full, and the session has no automatic flushes. The rows before are buffered.
            SessionClosed: the session is closed.
        """
        for row in each_row(rows):
            while not self.try_add(kind, row):
                if not self._options.auto_flush:
                    raise BufferFull(f"the session's buffer is full with {self._buffer.unsent} rows; flush the session")
                self._room.clear()
                self._start_sending()
                await self._room.wait()

    def try_add(self, kind: OpKind, row: Any) -> bool:
        """Add one row; return false if the buffer is full. May be called from any thread. The loop sends the row."""
        if self.closed:
            raise SessionClosed("the session is closed; open another")
        kind = kind_of_write(kind)
        added, wake = self._buffer.add(kind, row)
        if wake and self._options.auto_flush:
            self._loop.call_soon_threadsafe(self._on_rows)
        return added

    async def flush(self) -> None:
        """Send all buffered rows, and wait for the answers. Failed rows are collected in ``failures``, not raised."""
        await self._send_until_empty()
        if self._error is not None:
            error, self._error = self._error, None
            self.unreported.given_up = 0
            raise error

    async def _send_until_empty(self) -> None:
        while self._buffer.unsent or self._sending is not None:
            self._start_sending()
            assert self._sending is not None
            await asyncio.wait([self._sending])

    @property
    def failures(self) -> tuple[RowFailure, ...]:
        """The first ``FAILURES_MAX`` rows that were not written since the last :meth:`take_failures`."""
        self.unreported.seen = self.unreported.failed
        return tuple(self._failures)

    def take_failures(self) -> WriteResult:
        """Return the result of the rows that were answered since the last call, and clear ``failures``."""
        with self._lock:
            failures, self._failures = self._failures, []
            failed, self.unreported.failed, self.unreported.seen = self.unreported.failed, 0, 0
            rows, self._answered = self._answered, 0
            counts, self._counts = self._counts, Counter()
        return WriteResult(
            rows=rows, failed=failed, failures=tuple(failures), counts=dict(counts), timestamp=self._timestamp
        )

    async def close(self) -> None:
        """Flush the session and close it.

        Raises:
            RowsFailed: rows were not written, and :meth:`take_failures` has not returned them.
        """
        if self.closed:
            return
        await self.flush()
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        failed, self.unreported.is_closed = self.unreported.failed, True
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
        """Close the session without sending its buffered rows. Waits for the answers to rows in flight."""
        self.closed = self.unreported.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        while self._buffer.unsent:
            self._buffer.release(self._buffer.take())
        if self._sending is not None:
            await asyncio.wait([self._sending])

    async def finish(self, timeout_s: float) -> None:
        """Close a session that was left open when its client is closed, or the program ends.

        A session with automatic flushes sends its rows, for at most ``timeout_s`` seconds. An ``UnwrittenRows`` warning
        reports the rows that are not written then."""
        if self._options.auto_flush and self.unreported.is_pending:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._send_until_empty(), timeout_s)
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.unreported.warn()

    # -- on the loop -----------------------------------------------------------------------------

    def _on_rows(self) -> None:
        """Send the buffered rows if there are enough; else start the timer of the flush interval."""
        if self._buffer.is_due:
            self._start_sending()
        elif self._timer is None and self._buffer.unsent and not self.closed:
            self._timer = self._loop.call_later(self._options.flush_interval_s, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._start_sending()

    def _start_sending(self) -> None:
        if self._sending is None:
            self._sending = self._loop.create_task(self._send_all())

    async def _send_all(self) -> None:
        """Send the buffered rows until there are none."""
        try:
            while rows := self._buffer.take():
                await self._send_or_give_up(rows)
        finally:
            self._sending = None

    async def _send_or_give_up(self, rows: list[_BufferedRow]) -> None:
        """Send rows. After an error, which only a defect can cause, it is not known whether they are written."""
        is_answered = False
        try:
            await self._send(rows)
            is_answered = True
        except Exception as error:
            self._error = self._error or error  # ``flush`` raises it.
            which = f"rows {rows[0].number} to {rows[-1].number} of the session"
            self._error.add_note(f"it is not known whether {which} are written")
            self.unreported.error = f"{type(error).__name__}: {error}"
        finally:
            self.unreported.given_up += 0 if is_answered else len(rows)
            self._buffer.release(rows)
            self._room.set()

    async def _send(self, buffered: list[_BufferedRow]) -> None:
        """Send rows in as few turns of the loop as possible. A turn sends one request to each tablet."""
        writer, tallies = self._writer, []
        writes: list[tuple[PlannedWrite, OpKind]] = []
        for kind, group in groupby(buffered, key=lambda one: one.kind):
            rows = [*group]
            tally = FailureTally(writer.name, kind)
            tally.rows = rows[0].number
            tallies.append(tally)
            writes += [(planned, kind) for planned in writer.planned(kind, [one.row for one in rows], tally)]
        for together in _turns(writes):
            sent_to: set[TabletId] = set()
            for planned, _ in together:
                planned.send(self._options.timeout_s, sent_to)
            for planned, kind in together:
                with suppress(StelaeError):  # Its rows are counted as failed, with the error as the reason.
                    await writer.finish(planned, kind, self._options.timeout_s)
        with self._lock:
            self._answered += len(buffered)
            for tally in tallies:
                self.unreported.failed += tally.failed
                self._counts += tally.counts
                self._failures += tally.result().failures[: FAILURES_MAX - len(self._failures)]
                self.unreported.reason = str(self._failures[0]) if self._failures else ""
                self._timestamp = max(self._timestamp, tally.timestamp)


def _turns(writes: Iterable[tuple[PlannedWrite, OpKind]]) -> Iterator[list[tuple[PlannedWrite, OpKind]]]:
    """Group planned writes, in their order, so that the operations of a group fit in one request."""
    together: list[tuple[PlannedWrite, OpKind]] = []
    size_bytes = operations = 0
    for planned, kind in writes:
        size_bytes, operations = size_bytes + planned.size_bytes, operations + planned.operations
        if together and (size_bytes > REQUEST_BYTES_MAX or operations > OPS_MAX):
            yield together
            together, size_bytes, operations = [], planned.size_bytes, planned.operations
        together.append((planned, kind))
    yield together


def each_row(rows: Any) -> Iterable[Any]:
    """Return the rows of an argument of a session's methods: one row, or an iterable of rows.

    Raises:
        SchemaMismatch: the argument is a frame. The methods of the table take frames.
    """
    if isinstance(rows, Mapping | tuple) or is_series(rows):
        return (rows,)
    family = type(rows).__module__.partition(".")[0]
    if family in ("pandas", "polars", "pyarrow") or isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise SchemaMismatch(f"a session takes rows, not a {type(rows).__name__}; pass a frame to the table's methods")
    return rows
