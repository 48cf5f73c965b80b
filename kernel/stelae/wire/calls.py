"""Calls under way on one link: deadlines, jittered retries, cancellation. No socket in sight.

A call keeps its request id through all attempts: an answer to any is the answer; a late or second one finds no call."""

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
    """How an idempotent call is repeated to the same node until its deadline: when ``attempt_ms`` brought no answer;
    after a growing, random pause when it could not be sent, or the answer was ``OVERLOADED`` or ``UNAVAILABLE``."""

    attempt_ms: int = 2000
    backoff_ms_min: int = 10
    backoff_ms_max: int = 500

    def backoff_us(self, attempts: int, rng: random.Random) -> int:
        ceiling_ms = min(self.backoff_ms_max, self.backoff_ms_min << min(attempts, 16))
        spread_ms = max(0, ceiling_ms - self.backoff_ms_min)
        return int(1000 * (self.backoff_ms_min + rng.random() * spread_ms))


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a call."""

    sender: NodeId
    body: Sequence[Buffer]
    fields: Fields


class Call(asyncio.Future[Response]):
    """A call, and the future of its answer; cancelling it is told to its table at once."""

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
        self.sent = False  # whether an attempt is on the present connection
        self.hindrance: StelaeError | None = None  # what the last attempt met
        self.table: CallTable | None = None

    def cancel(self, msg: object | None = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled and self.table is not None:
            self.table.give_up(self)
        return cancelled

    def on_due(self, now_us: int) -> None:
        if self.table is not None:
            self.table.due(self, now_us)


@dataclass(slots=True, eq=False)
class CallTable:
    """The calls of one link, by request id. ``transmit(call, now_us)`` queues an attempt and returns the error that
    prevents it, if any; ``cancel(request_id)`` tells the peer that nobody waits any more."""

    _transmit: Callable[[Call, int], StelaeError | None]
    _cancel: Callable[[int], None]
    _deadlines: Deadlines
    _rng: random.Random
    _calls: dict[int, Call] = field(init=False, default_factory=dict)

    def start(self, call: Call, now_us: int) -> None:
        self._calls[call.request_id] = call
        call.table = self
        self._attempt(call, now_us)

    def answer(self, request_id: int, response: Response) -> bool:
        """Complete a call; say whether anybody was waiting."""
        if (call := self._calls.get(request_id)) is not None and self._forget(call):
            call.set_result(response)
        return call is not None

    def refuse(self, request_id: int, error: StelaeError, now_us: int) -> bool:
        """Fail a call, or let it wait for its next attempt; say whether anybody was waiting."""
        if (call := self._calls.get(request_id)) is not None:
            self._hinder(call, error, now_us)
        return call is not None

    def link_lost(self, error: StelaeError, now_us: int) -> None:
        """The connection is gone: what was sent on it fails, or waits for another."""
        for call in list(self._calls.values()):
            if call.sent:
                self._hinder(call, error, now_us)

    def link_up(self, now_us: int) -> None:
        """A connection stands: what waits for one is sent now."""
        for call in list(self._calls.values()):
            if not call.sent:
                self._attempt(call, now_us)

    def due(self, call: Call, now_us: int) -> None:
        """Fail a call that is past its deadline, or repeat it."""
        if now_us < call.deadline_us:
            self._attempt(call, now_us)
            return
        if call.sent:
            self._cancel(call.request_id)
        why = f" (last hindrance: {call.hindrance})" if call.hindrance is not None else ""
        self._fail(call, DeadlineExceeded(f"no answer to {call.kind} within its deadline{why}"))

    def give_up(self, call: Call) -> None:
        self._forget(call)
        if call.sent:
            self._cancel(call.request_id)

    def fail_all(self, error: StelaeError) -> None:
        for call in list(self._calls.values()):
            self._fail(call, error)

    def _attempt(self, call: Call, now_us: int) -> None:
        call.attempts += 1
        error = self._transmit(call, now_us)
        call.sent = error is None
        if error is not None:
            self._hinder(call, error, now_us)
        elif call.retry is None:
            self._wait(call, call.deadline_us)
        else:
            self._wait(call, now_us + call.retry.attempt_ms * 1000)

    def _hinder(self, call: Call, error: StelaeError, now_us: int) -> None:
        if call.retry is None or not isinstance(error, Overloaded | Unavailable):
            self._fail(call, error)
            return
        call.sent, call.hindrance = False, error
        self._wait(call, now_us + call.retry.backoff_us(call.attempts, self._rng))

    def _wait(self, call: Call, until_us: int) -> None:
        self._deadlines.set(call, min(until_us, call.deadline_us))

    def _fail(self, call: Call, error: StelaeError) -> None:
        if self._forget(call):
            call.set_exception(error)

    def _forget(self, call: Call) -> bool:
        """Remove a call; say whether its future still waits."""
        del self._calls[call.request_id]
        self._deadlines.drop(call)
        call.table = None
        return not call.done()
