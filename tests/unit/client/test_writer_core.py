"""The writer's state machine without a loop: which sequences travel, and what each request says was answered."""

from __future__ import annotations

import random
from collections.abc import Callable

from stelae.client.leader_tracker import LeaderTracker
from stelae.client.writer_core import UNANSWERED, WriterCore
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.rows.operation_encoding import operation
from stelae.spi.errors import DeadlineExceeded, NotLeader, StelaeError, Unavailable
from stelae.spi.ids import ClientId, NodeId, TabletId
from stelae.spi.services import Buffer
from stelae.spi.write import Answer, OpKind, OpResult, WriteReply, WriteRequest, decode_request, encode_reply

NODES = [NodeId("a"), NodeId("b")]
Answered = Callable[[Buffer | StelaeError], None]


class Ports:
    """A clock that is set, and requests that are answered on demand."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.turn: list[Callable[[], None]] = []
        self.timers: list[Callable[[], None]] = []
        self.sent: list[tuple[NodeId, WriteRequest, Answered]] = []

    def now_s(self) -> float:
        return self.time_s

    def call_later(self, delay_s: float, call: Callable[[], None]) -> object:
        self.timers.append(call)
        return None

    def defer(self, call: Callable[[], None]) -> None:
        self.turn.append(call)

    def send(self, to: NodeId, request: bytes, answered: Answered) -> None:
        self.sent.append((to, decode_request(request), answered))

    def ask_if_gone(self, error: NoSuchTablet) -> None:
        raise AssertionError("no test lets a tablet go")

    def run(self) -> None:
        """End the turn, and let every pause end."""
        while self.turn or self.timers:
            (self.turn or self.timers).pop(0)()


class Waiter:
    """Keeps the outcome of one operation."""

    def __init__(self) -> None:
        self.outcome: OpResult | StelaeError | None = None

    def done(self) -> bool:
        return self.outcome is not None

    def set_result(self, result: OpResult, /) -> None:
        self.outcome = result

    def set_exception(self, error: StelaeError, /) -> None:
        self.outcome = error


class World:
    """A writer, and what it has sent."""

    def __init__(self) -> None:
        self.ports = Ports()
        self.core = WriterCore(
            self.ports,
            LeaderTracker(NODES),
            tablet_id=TabletId("t"),
            client_id=ClientId("c"),
            schema_version=1,
            rng=random.Random(1),
        )

    def write(self, timeout_s: float = 60.0) -> Waiter:
        """Write one operation in a turn of its own."""
        waiter = Waiter()
        self.core.write(operation(OpKind.UPSERT, [(1,)]), timeout_s, waiter)
        self.ports.run()
        return waiter

    def answer(self, request: int, answer: WriteReply | StelaeError) -> None:
        answered = self.ports.sent[request][2]
        answered(answer if isinstance(answer, StelaeError) else encode_reply(answer))
        self.ports.run()

    def requests(self) -> list[tuple[str, int, list[int]]]:
        """Of each request: to whom, its ``first_incomplete``, and its sequences."""
        return [
            (to, one.first_incomplete, [run.first_sequence + n for run in one.sequences for n in range(len(run.ops))])
            for to, one, _ in self.ports.sent
        ]


def done(sequence: int) -> WriteReply:
    return WriteReply([Answer(sequence, 1, OpResult(100 + sequence))])


def test_first_incomplete_is_the_oldest_operation_without_an_answer_whatever_the_request_holds() -> None:
    """Taken from the request, it let the server forget the result of an operation that was to be sent again."""
    world = World()
    world.write()
    world.write()
    world.answer(1, done(2))
    world.write()
    assert world.requests() == [("a", 1, [1]), ("a", 1, [2]), ("a", 1, [3])]
    world.answer(0, done(1))
    world.write()
    assert world.requests()[-1] == ("a", 3, [4])


def test_a_write_of_unknown_fate_is_sent_again_under_its_number_and_with_its_bytes() -> None:
    world = World()
    waiter = world.write()
    world.answer(0, Unavailable("the connection was lost"))
    world.write()
    assert world.requests() == [("a", 1, [1]), ("b", 1, [1]), ("b", 1, [2])]
    assert world.ports.sent[0][1].sequences == world.ports.sent[1][1].sequences
    assert waiter.outcome is None
    world.answer(1, done(1))
    assert waiter.outcome == OpResult(101)


def test_an_operation_outlives_a_change_of_leader_and_an_answer_is_of_its_own_sequence() -> None:
    world = World()
    first, second = world.write(), world.write()
    world.answer(0, NotLeader("b"))
    world.answer(1, done(2))
    assert (first.outcome, second.outcome) == (None, OpResult(102))
    assert world.requests()[-1] == ("b", 1, [1])
    world.answer(2, done(1))
    assert first.outcome == OpResult(101) and world.core.pending == 0


def test_an_operation_past_its_deadline_is_of_unknown_fate_and_is_not_sent_again() -> None:
    world = World()
    waiter = world.write(timeout_s=1.0)
    world.ports.time_s = 2.0
    world.answer(0, Unavailable("no answer"))
    assert isinstance(waiter.outcome, DeadlineExceeded)
    world.write()
    assert world.requests() == [("a", 1, [1]), ("b", 2, [2])]


def test_a_retry_is_not_sent_if_its_deadline_has_passed_during_the_pause_before_it() -> None:
    """A machine that was suspended for hours during a pause sent it again, to servers that had forgotten its client."""
    world = World()
    waiter = world.write(timeout_s=60.0)
    world.ports.sent[0][2](Unavailable("the connection was lost"))  # It may have been applied.
    world.ports.time_s = 7200.0
    world.ports.run()
    assert isinstance(waiter.outcome, DeadlineExceeded)
    assert len(world.requests()) == 1
    world.write()
    assert world.requests()[1:] == [("b", 2, [2])], "a late copy of the first request is stale from now on"


def test_retries_are_counted_by_the_code_of_the_error_that_made_them_necessary() -> None:
    world = World()
    world.write()
    world.write()
    world.answer(0, NotLeader("b"))
    world.answer(1, NotLeader("b"))
    world.answer(2, Unavailable("the connection was lost"))
    world.answer(3, done(3))
    assert dict(world.core.retries) == {"NOT_LEADER": 2, "UNAVAILABLE": 1, UNANSWERED: 1}
