"""Calls under way on one link: deadlines, jittered retries, cancellation. No socket in sight.

A call keeps its request id through all its attempts, so an answer to any of them is the answer,
and a late or repeated one finds nothing to complete.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stelae.spi.errors import DeadlineExceeded, Overloaded, StelaeError, Unavailable
from stelae.spi.ids import NodeId
from stelae.spi.services import Buffer
from stelae.wire.deadlines import Deadlines
from stelae.wire.refusals import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How an idempotent call is repeated to the same node until its deadline.

    An attempt without an answer for ``attempt_ms`` is repeated; one that could not be sent, or was
    answered ``OVERLOADED`` or ``UNAVAILABLE``, after a pause that grows from ``backoff_ms_min`` to
    ``backoff_ms_max`` and is drawn anew each time.
    """

    attempt_ms: int = 2000
    backoff_ms_min: int = 10
    backoff_ms_max: int = 500

    def backoff_us(self, attempts: int, rng: random.Random) -> int:
        """Return the pause after ``attempts`` attempts, in microseconds."""
        ceiling_ms = min(self.backoff_ms_max, self.backoff_ms_min << min(attempts, 16))
        spread_ms = max(0, ceiling_ms - self.backoff_ms_min)
        return int(1000 * (self.backoff_ms_min + rng.random() * spread_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The answer to a call."""

    sender: NodeId
    body: Sequence[Buffer]
    fields: Fields


class CallFuture(asyncio.Future[Response]):
    """A future whose cancellation is told to the link at once, at no cost to those that are not."""

    on_cancel: Callable[[], None] | None = None

    def cancel(self, msg: object | None = None) -> bool:
        """Cancel the call; the peer is told, and an answer that still comes is dropped."""
        cancelled = super().cancel(msg)
        if cancelled and self.on_cancel is not None:
            self.on_cancel()
        return cancelled


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """One call.

    ``sent`` says whether an attempt is on the present connection, ``hindrance`` what the last
    attempt met, for the error at the deadline.
    """

    request_id: int
    kind: str
    frames: Sequence[Buffer]
    lengths: list[int]
    fields: Fields | None
    trace_id: str
    deadline_us: int
    retry: RetryPolicy | None
    future: CallFuture
    attempts: int = 0
    bucket: int = 0
    sent: bool = False
    hindrance: StelaeError | None = None


class CallTable:
    """The calls of one link.

    ``transmit(call, now_us)`` queues an attempt and returns the error that prevents it, if any;
    ``cancel(request_id)`` tells the peer that nobody waits any more; ``wake_at(due_us)`` asks for
    ``expire`` to be called then.
    """

    def __init__(
        self,
        transmit: Callable[[Call, int], StelaeError | None],
        cancel: Callable[[int], None],
        wake_at: Callable[[int], None],
        rng: random.Random,
    ) -> None:
        self._transmit = transmit
        self._cancel = cancel
        self._wake_at = wake_at
        self._rng = rng
        self._calls: dict[int, Call] = {}
        self._deadlines: Deadlines[int] = Deadlines()

    def __len__(self) -> int:
        return len(self._calls)

    def start(self, call: Call, now_us: int) -> None:
        """Begin a call."""
        self._calls[call.request_id] = call
        call.future.on_cancel = lambda: self._cancelled(call.request_id)
        self._attempt(call, now_us)

    def answer(self, request_id: int, response: Response) -> bool:
        """Complete a call; say whether anybody was waiting for it."""
        call = self._remove(request_id)
        if call is None:
            return False
        if not call.future.done():
            call.future.set_result(response)
        return True

    def refuse(self, request_id: int, error: StelaeError, now_us: int) -> bool:
        """Fail a call, or let it wait for its next attempt; say whether anybody was waiting."""
        call = self._calls.get(request_id)
        if call is None:
            return False
        if call.retry is not None and isinstance(error, Overloaded | Unavailable):
            call.sent = False
            call.hindrance = error
            self._wait(call, now_us + call.retry.backoff_us(call.attempts, self._rng))
        else:
            self._fail(call, error)
        return True

    def link_lost(self, error: StelaeError, now_us: int) -> None:
        """The connection is gone: what was sent on it fails, or waits for another."""
        for call in list(self._calls.values()):
            if call.sent:
                self.refuse(call.request_id, error, now_us)

    def link_up(self, now_us: int) -> None:
        """A connection stands: what waits for one is sent now."""
        for call in list(self._calls.values()):
            if not call.sent:
                self._attempt(call, now_us)

    def expire(self, now_us: int) -> None:
        """Fail what is past its deadline, and repeat what is due. Drain the socket first."""
        for request_id in self._deadlines.pop_due(now_us):
            call = self._calls.get(request_id)
            if call is None:
                continue
            if now_us >= call.deadline_us:
                if call.sent:
                    self._cancel(request_id)
                self._fail(call, _too_late(call))
            else:
                self._attempt(call, now_us)

    def next_due_us(self) -> int | None:
        """When ``expire`` wants to be called."""
        return self._deadlines.next_due_us()

    def fail_all(self, error: StelaeError) -> None:
        """Fail every call: the messenger is closing or the peer was removed."""
        for call in list(self._calls.values()):
            self._fail(call, error)

    def _attempt(self, call: Call, now_us: int) -> None:
        call.attempts += 1
        error = self._transmit(call, now_us)
        call.sent = error is None
        if error is None:
            retry = call.retry
            wait_until = call.deadline_us if retry is None else now_us + retry.attempt_ms * 1000
            self._wait(call, wait_until)
        elif call.retry is not None:
            call.hindrance = error
            self._wait(call, now_us + call.retry.backoff_us(call.attempts, self._rng))
        else:
            self._fail(call, error)

    def _wait(self, call: Call, until_us: int) -> None:
        if call.bucket:
            self._deadlines.discard(call.bucket, call.request_id)
        due_us = min(until_us, call.deadline_us)
        call.bucket = self._deadlines.add(due_us, call.request_id)
        self._wake_at(due_us)

    def _fail(self, call: Call, error: StelaeError) -> None:
        self._remove(call.request_id)
        if not call.future.done():
            call.future.set_exception(error)

    def _remove(self, request_id: int) -> Call | None:
        call = self._calls.pop(request_id, None)
        if call is not None:
            self._deadlines.discard(call.bucket, request_id)
            call.future.on_cancel = None
        return call

    def _cancelled(self, request_id: int) -> None:
        call = self._remove(request_id)
        if call is not None and call.sent:
            self._cancel(request_id)


def _too_late(call: Call) -> DeadlineExceeded:
    why = f" (last hindrance: {call.hindrance})" if call.hindrance is not None else ""
    return DeadlineExceeded(f"no answer to {call.kind} within its deadline{why}")
