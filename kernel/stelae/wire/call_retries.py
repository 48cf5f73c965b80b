"""Calls in progress on one link: deadlines, retries with jitter, cancellation. This module uses no sockets.

All attempts of a call have the same request id. The answer to any attempt completes the call; later answers find no
call and are ignored. A retry ends with the call's deadline (``CallTable.due``)."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from stelae.spi.errors import DeadlineExceeded, Overloaded, StelaeError, Unavailable
from stelae.spi.ids import NodeId
from stelae.spi.services import Buffer
from stelae.wire.deadlines import Deadlines
from stelae.wire.refusals import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How an idempotent call is repeated to the same node until its deadline.

    It is repeated when an attempt has had no answer for ``attempt_ms``. When it could not be sent, or the answer was
    ``OVERLOADED`` or ``UNAVAILABLE``, it is repeated after a random pause whose upper bound doubles with each attempt,
    from ``backoff_ms_min`` up to ``backoff_ms_max``."""

    attempt_ms: int = 2000
    backoff_ms_min: int = 10
    backoff_ms_max: int = 500

    def backoff_us(self, attempts: int, rng: random.Random) -> int:
        """Return the pause in microseconds after ``attempts`` attempts."""
        ceiling_ms = min(self.backoff_ms_max, self.backoff_ms_min << min(attempts, 16))
        spread_ms = max(0, ceiling_ms - self.backoff_ms_min)
        return int(1000 * (self.backoff_ms_min + rng.random() * spread_ms))


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a call."""

    sender: NodeId
    body: Sequence[Buffer]
    fields: Fields


class Call(asyncio.Future[Response]):
    """A call, and the future of its answer. ``cancel`` removes it from its table at once, and the peer is notified."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        request_id: int,
        kind: str,
        frames: Sequence[Buffer],
        lengths: list[int],
        fields: Fields | None,
        trace_id: str,
        deadline_us: int,
        retry: RetryPolicy | None,
    ) -> None:
        super().__init__(loop=loop)
        self.request_id, self.kind, self.trace_id = request_id, kind, trace_id
        self.fields, self.frames, self.lengths = fields, frames, lengths
        self.deadline_us, self.retry = deadline_us, retry
        self.attempts = self.bucket = 0
        self.sent = False  #: Whether an attempt was sent on the current connection.
        self.last_error: StelaeError | None = None  #: Why the last attempt failed.
        self.table: CallTable | None = None

    def cancel(self, msg: object | None = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled and self.table is not None:
            self.table.cancelled(self)
        return cancelled

    def on_due(self, now_us: int) -> None:
        if self.table is not None:
            self.table.due(self, now_us)


@dataclass(slots=True, eq=False)
class CallTable:
    """The calls of one link, by request id."""

    #: ``transmit(call, now_us)`` queues an attempt, or returns the error that prevents it.
    _transmit: Callable[[Call, int], StelaeError | None]
    #: ``send_cancel(request_id)`` notifies the peer that the caller no longer waits.
    _send_cancel: Callable[[int], None]
    _deadlines: Deadlines
    _rng: random.Random
    _calls: dict[int, Call] = field(init=False, default_factory=dict)

    def start(self, call: Call, now_us: int) -> None:
        """Add a call and make its first attempt."""
        self._calls[call.request_id] = call
        call.table = self
        self._attempt(call, now_us)

    def answer(self, request_id: int, response: Response) -> bool:
        """Complete a call with its answer. Return whether there was such a call."""
        if (call := self._calls.get(request_id)) is not None and self._remove(call):
            call.set_result(response)
        return call is not None

    def refuse(self, request_id: int, error: StelaeError, now_us: int) -> bool:
        """Handle an answer that is an error: fail the call, or schedule its retry. Return whether there was a call."""
        if (call := self._calls.get(request_id)) is not None:
            self._attempt_failed(call, error, now_us)
        return call is not None

    def link_lost(self, error: StelaeError, now_us: int) -> None:
        """Handle the loss of the connection: the calls that were sent on it fail, or their retries are scheduled."""
        for call in list(self._calls.values()):
            if call.sent:
                self._attempt_failed(call, error, now_us)

    def link_up(self, now_us: int) -> None:
        """Handle a new connection: send the calls that wait for one."""
        for call in list(self._calls.values()):
            if not call.sent:
                self._attempt(call, now_us)

    def due(self, call: Call, now_us: int) -> None:
        """Repeat a call, or fail it with ``DeadlineExceeded`` if its deadline has passed."""
        if now_us < call.deadline_us:
            self._attempt(call, now_us)
            return
        if call.sent:
            self._send_cancel(call.request_id)
        why = f" (last error: {call.last_error})" if call.last_error is not None else ""
        self._fail(call, DeadlineExceeded(f"no answer to {call.kind} within its deadline{why}"))

    def cancelled(self, call: Call) -> None:
        """Remove a call that its caller has cancelled, and notify the peer."""
        self._remove(call)
        if call.sent:
            self._send_cancel(call.request_id)

    def fail_all(self, error: StelaeError) -> None:
        """Fail all calls."""
        for call in list(self._calls.values()):
            self._fail(call, error)

    def _attempt(self, call: Call, now_us: int) -> None:
        call.attempts += 1
        error = self._transmit(call, now_us)
        call.sent = error is None
        if error is not None:
            self._attempt_failed(call, error, now_us)
        elif call.retry is None:
            self._wait(call, call.deadline_us)
        else:
            self._wait(call, now_us + call.retry.attempt_ms * 1000)

    def _attempt_failed(self, call: Call, error: StelaeError, now_us: int) -> None:
        if call.retry is None or not isinstance(error, Overloaded | Unavailable):
            self._fail(call, error)
            return
        call.sent, call.last_error = False, error
        self._wait(call, now_us + call.retry.backoff_us(call.attempts, self._rng))

    def _wait(self, call: Call, until_us: int) -> None:
        self._deadlines.set(call, min(until_us, call.deadline_us))

    def _fail(self, call: Call, error: StelaeError) -> None:
        if self._remove(call):
            call.set_exception(error)

    def _remove(self, call: Call) -> bool:
        """Remove a call. Return whether its future is still pending."""
        del self._calls[call.request_id]
        self._deadlines.drop(call)
        call.table = None
        return not call.done()
