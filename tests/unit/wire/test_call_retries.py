"""Calls under way: deadlines, retries, cancellation; driven by hand, without a socket."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from stelae.spi.errors import DeadlineExceeded, NotLeader, Overloaded, StelaeError, Unavailable
from stelae.spi.ids import NodeId
from stelae.wire.call_retries import Call, CallTable, Response, RetryPolicy
from stelae.wire.deadlines import BUCKET_US, Deadlines

ANSWER = Response(sender=NodeId("b" * 32), body=[b"answer"], fields={})
RETRY = RetryPolicy(attempt_ms=100, backoff_ms_min=10, backoff_ms_max=80)


class Wire:
    """Records what a table sends; ``hindrance`` is what stands in its way."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.sent: list[int] = []
        self.cancelled: list[int] = []
        self.hindrance: StelaeError | None = None
        self.woken: list[int] = []
        self.deadlines = Deadlines(self.woken.append)
        self.table = CallTable(self._transmit, self.cancelled.append, self.deadlines, random.Random(3))

    def _transmit(self, call: Call, now_us: int) -> StelaeError | None:
        if self.hindrance is None:
            self.sent.append(call.request_id)
        return self.hindrance

    def call(self, request_id: int = 1, *, deadline_ms: int = 1000, retry: RetryPolicy | None = None) -> Call:
        call = Call(
            self.loop,
            request_id,
            kind="echo",
            frames=(),
            lengths=[],
            fields=None,
            trace_id="",
            deadline_us=deadline_ms * 1000,
            retry=retry,
        )
        self.table.start(call, 0)
        return call


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture(autouse=True)
def closed(wire: Wire) -> Callable[[], None]:
    yield
    wire.table.fail_all(Unavailable("end of test"))
    assert not wire.table._calls
    assert wire.deadlines.next_due_us() is None
    wire.loop.close()


def test_the_first_answer_counts_and_a_late_or_repeated_one_finds_nobody(wire: Wire) -> None:
    future = wire.call()
    assert wire.table.answer(1, ANSWER)
    assert future.result() is ANSWER
    assert not wire.table.answer(1, ANSWER)
    assert not wire.table.refuse(1, Overloaded("late"), 0)
    assert not wire.table.answer(77, ANSWER)


def test_a_call_without_retry_fails_at_once_when_it_cannot_be_sent(wire: Wire) -> None:
    wire.hindrance = Unavailable("not connected")
    with pytest.raises(Unavailable, match="not connected"):
        wire.call().result()


def test_a_call_without_retry_fails_when_its_connection_is_lost(wire: Wire) -> None:
    future = wire.call()
    wire.table.link_lost(Unavailable("lost"), 5)
    with pytest.raises(Unavailable, match="lost"):
        future.result()


def test_at_its_deadline_a_call_fails_and_the_peer_is_told(wire: Wire) -> None:
    future = wire.call(deadline_ms=200)
    wire.deadlines.expire(199_999)
    assert not future.done()
    wire.deadlines.expire(200_000)
    with pytest.raises(DeadlineExceeded):
        future.result()
    assert wire.cancelled == [1]


def test_an_idempotent_call_is_repeated_under_its_id_until_its_deadline(wire: Wire) -> None:
    future = wire.call(deadline_ms=1000, retry=RETRY)
    now_us = 0
    while not future.done():
        due_us = wire.deadlines.next_due_us()
        assert due_us is not None
        assert due_us > now_us
        now_us = due_us
        wire.deadlines.expire(now_us)
    assert wire.sent == [1] * 10
    assert now_us == 1_000_000
    with pytest.raises(DeadlineExceeded):
        future.result()


def test_any_attempts_answer_completes_an_idempotent_call(wire: Wire) -> None:
    future = wire.call(retry=RETRY)
    wire.deadlines.expire(100_000)
    assert wire.sent == [1, 1]
    assert wire.table.answer(1, ANSWER)
    assert future.result() is ANSWER


def test_overload_and_unavailability_are_retried_after_a_growing_jittered_pause(wire: Wire) -> None:
    future = wire.call(deadline_ms=100_000, retry=RETRY)
    now_us, pauses_ms = 0, []
    for _ in range(12):
        wire.table.refuse(1, Overloaded("busy"), now_us)
        due_us = wire.deadlines.next_due_us()
        assert due_us is not None
        pauses_ms.append((due_us - now_us) / 1000)
        assert due_us - BUCKET_US < wire.woken[-1] <= due_us
        now_us = due_us
        wire.deadlines.expire(now_us)
    assert not future.done()
    assert all(10 <= pause <= 90 for pause in pauses_ms)
    assert max(pauses_ms[:2]) < max(pauses_ms)
    assert len(set(pauses_ms)) > 3


def test_other_refusals_reach_the_caller_even_of_an_idempotent_call(wire: Wire) -> None:
    future = wire.call(retry=RETRY)
    wire.table.refuse(1, NotLeader("c" * 32), 5)
    with pytest.raises(NotLeader) as caught:
        future.result()
    assert caught.value.leader == "c" * 32


def test_an_idempotent_call_waits_out_a_lost_link_and_goes_as_soon_as_one_is_up(wire: Wire) -> None:
    wire.call(retry=RETRY)
    wire.hindrance = Unavailable("not connected")
    wire.table.link_lost(Unavailable("lost"), 5)
    wire.deadlines.expire(90_000)
    assert wire.sent == [1]
    wire.hindrance = None
    wire.table.link_up(95_000)
    assert wire.sent == [1, 1]
    wire.table.link_up(95_000)
    assert wire.sent == [1, 1]


def test_the_error_at_the_deadline_names_the_last_hindrance(wire: Wire) -> None:
    wire.hindrance = Unavailable("not connected to x")
    future = wire.call(deadline_ms=50, retry=RETRY)
    while not future.done():
        wire.deadlines.expire(wire.deadlines.next_due_us() or 0)
    with pytest.raises(DeadlineExceeded, match="not connected to x"):
        future.result()
    assert wire.cancelled == []


def test_cancelling_a_call_tells_the_peer_once_and_drops_the_answer(wire: Wire) -> None:
    future = wire.call()
    assert future.cancel()
    assert not future.cancel()
    assert wire.cancelled == [1]
    assert not wire.table.answer(1, ANSWER)


def test_cancelling_a_call_that_never_left_tells_nobody(wire: Wire) -> None:
    wire.hindrance = Unavailable("not connected")
    wire.call(retry=RETRY).cancel()
    assert wire.cancelled == []
