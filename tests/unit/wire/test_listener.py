"""The listening half without a socket: who may speak, and how requests end."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest

from stelae.spi.errors import NotLeader
from stelae.spi.services import Buffer
from stelae.wire.envelope import Envelope, MessageKind, encode_envelope
from stelae.wire.listener import IDLE_FACTOR, Listener
from stelae.wire.packets import PACK_BELOW
from stelae.wire.requests import OneWayMessage, Request, ServedKind, ServedKinds
from stelae.wire.settings import FRAMES_MAX, Lane, WireSettings
from tests.unit.wire.worlds import CLOCK_LIMIT, SocketLoop, context, identity

PEER = identity(2, run=5)


class Socket:
    """A listening socket that keeps what is sent, per routing id."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, list[Buffer]]] = []
        self.reachable = True
        self.closed = False

    def bind(self, host: str, port: int) -> str:
        return f"{host}:{port}"

    def close(self) -> None:
        self.closed = True

    def send(self, frames: Any) -> bool:
        if self.reachable:
            self.sent.append((frames[0], list(frames[1:])))
        return self.reachable


class World:
    """A listener, its socket, its services, and peers that speak to it."""

    def __init__(self, **settings: Any) -> None:
        self.context = context(1, settings=WireSettings(**settings))
        self.port = Socket()
        self.requests: list[Request] = []
        self.messages: list[OneWayMessage] = []
        self.socket_loop = SocketLoop(self.port)
        services = self.services()
        services.add("ask", ServedKind(lane=Lane.CONTROL, on_request=self.requests.append))
        services.add("ask.bulk", ServedKind(lane=Lane.BULK, on_request=self.requests.append))
        services.add("tell", ServedKind(lane=Lane.CONTROL, on_message=self.messages.append))
        self.listen(services)

    def services(self) -> ServedKinds:
        return ServedKinds(self.context, self.socket_loop.deadlines)

    def listen(self, services: ServedKinds) -> None:
        self.listener = Listener(self.context, services, self.socket_loop, "127.0.0.1", 7051)  # type: ignore[arg-type]

    def say(
        self,
        messages: list[tuple[object, ...]],
        body: list[bytes] | None = None,
        *,
        routing_id: bytes = b"r1",
        sender: Any = PEER,
        recipient: str | None = None,
        credit: int = 0,
        timestamp: int = 1,
    ) -> list[tuple[str, int, dict[str, Any]]]:
        """Deliver one message; return kind, request id and fields of what was answered."""
        me = self.context.identity
        header = encode_envelope(
            sender,
            recipient=me.node_id if recipient is None else recipient,
            incarnation=me.incarnation_id if recipient is None else "",
            timestamp=timestamp,
            credit=credit,
            messages=messages,
        )
        self.listener.on_packet([routing_id, header, *(body or [])])
        return self.answers()

    def answers(self) -> list[tuple[str, int, dict[str, Any]]]:
        self.listener.flush()
        sent, self.port.sent = self.port.sent, []
        return [
            (message.kind, message.request_id, dict(message.fields or {}))
            for _, frames in sent
            for message in msgspec.json.decode(bytes(frames[0]), type=Envelope).messages
        ]

    def hello(self, lane: Lane = Lane.CONTROL, *, window: int = 1 << 20, **how: Any) -> Any:
        fields = {"lane": int(lane), "window_bytes": window}
        return self.say([(MessageKind.HELLO, 1, 0, "", fields, [])], recipient="", **how)

    @property
    def clock(self) -> Any:
        return self.context.clock

    @property
    def metrics(self) -> Any:
        return self.context.metrics


def ask(request_id: int, kind: str = "ask", deadline_ms: int = 1000) -> tuple[object, ...]:
    return (kind, request_id, deadline_ms, "", None, [])


def codes(answers: list[tuple[str, int, dict[str, Any]]]) -> list[tuple[str, int, str]]:
    return [(kind, request_id, fields["code"]) for kind, request_id, fields in answers]


def test_hello_is_answered_with_ours_and_the_window_and_then_requests_pass() -> None:
    world = World()
    ((kind, _, fields),) = world.hello()
    assert kind == MessageKind.HELLO
    assert fields["window_bytes"] == WireSettings().control_window_bytes
    world.say([ask(7)])
    (request,) = world.requests
    assert (request.sender, request.sender_incarnation) == (PEER.node_id, PEER.incarnation_id)
    assert request.deadline_us == world.clock.now_us + 1_000_000
    assert request.reply([], {"n": 1})
    assert world.answers() == [(MessageKind.REPLY, 7, {"n": 1})]


def test_a_request_is_answered_once() -> None:
    world = World()
    world.hello()
    world.say([ask(7)])
    assert world.requests[0].reply()
    assert not world.requests[0].reply()
    assert not world.requests[0].refuse(NotLeader())
    assert world.answers() == [(MessageKind.REPLY, 7, {})]


def test_a_repeated_request_that_is_open_is_not_handed_over_twice() -> None:
    world = World()
    world.hello()
    world.say([ask(7), ask(7)])
    world.say([ask(7)])
    assert len(world.requests) == 1
    assert world.metrics["wire_requests_repeated"] == 2


def test_what_one_turn_answers_to_one_caller_leaves_as_one_message() -> None:
    world = World()
    world.hello()
    world.say([ask(number) for number in range(1, 41)])
    for request in world.requests:
        request.reply([b"row"])
    world.listener.flush()
    ((_, frames),) = world.port.sent
    assert len(frames) == 2
    assert bytes(frames[1]) == b"row" * 40


def test_a_message_of_an_unknown_kind_is_refused_alone() -> None:
    world = World()
    world.hello()
    answers = world.say([ask(1), ask(2, "nothing"), ask(3), ask(4, "tell"), ask(0), ask(6, "ask.bulk")])
    assert [request.request_id for request in world.requests] == [1, 3]
    assert codes(answers) == [
        (MessageKind.ERROR, 2, "UNKNOWN_KIND"),
        (MessageKind.ERROR, 4, "BAD_REQUEST"),
        (MessageKind.REFUSED, 0, "BAD_REQUEST"),
        (MessageKind.ERROR, 6, "BAD_REQUEST"),
    ]


def test_a_request_without_a_deadline_is_refused() -> None:
    world = World()
    world.hello()
    assert codes(world.say([ask(1, deadline_ms=0)])) == [(MessageKind.ERROR, 1, "BAD_REQUEST")]


@pytest.mark.parametrize("deadline_ms", [30_001, 300_000, 2**62])
def test_a_request_with_a_longer_deadline_than_the_node_allows_is_served_for_as_long_as_it_allows(
    deadline_ms: int,
) -> None:
    """Clients repeat a read with longer and longer deadlines. A node whose file allows less ended the read of a client
    as the client's fault."""
    world = World(deadline_ms_max=30_000, silence_ms_max=600_000)
    world.hello()
    assert not codes(world.say([ask(1, deadline_ms=deadline_ms), ask(2, deadline_ms=30_000)]))
    world.clock.now_us += 29_000_000
    world.socket_loop.deadlines.expire(world.clock.now_us)
    assert all(request.open for request in world.requests)
    world.clock.now_us += 1_010_000
    world.socket_loop.deadlines.expire(world.clock.now_us)
    assert not any(request.open for request in world.requests)
    assert codes(world.answers()) == [(MessageKind.ERROR, 1, "DEADLINE")], "the caller of the other one waits no longer"


def test_a_request_past_its_deadline_is_abandoned_and_cannot_be_answered() -> None:
    world = World()
    world.hello()
    world.say([ask(7, deadline_ms=50)])
    assert world.requests[0].open
    world.clock.now_us += 60_000
    assert world.requests[0].deadline_us in world.socket_loop.woken
    world.socket_loop.deadlines.expire(world.clock.now_us)
    assert not world.requests[0].open
    assert not world.requests[0].reply()
    world.say([ask(7)])
    assert len(world.requests) == 2


def test_a_cancelled_request_is_abandoned_and_an_unknown_cancel_is_nothing() -> None:
    world = World()
    world.hello()
    world.say([ask(7)])
    assert world.requests[0].open
    assert world.say([(MessageKind.CANCEL, 7, 0, "", None, []), (MessageKind.CANCEL, 99, 0, "", None, [])]) == []
    assert not world.requests[0].open
    assert not world.requests[0].reply()


def test_more_open_requests_than_allowed_are_overload() -> None:
    world = World(requests_open_max=2)
    world.hello()
    assert codes(world.say([ask(1), ask(2), ask(3)])) == [(MessageKind.ERROR, 3, "OVERLOADED")]
    world.requests[0].reply()
    world.answers()
    assert world.say([ask(4)]) == []


def test_a_handler_that_raises_ends_its_request_and_nothing_else() -> None:
    world = World()
    services = world.services()

    def handle(request: Request) -> None:
        raise NotLeader("c" * 32) if request.request_id == 1 else ValueError("a bug")

    services.add("ask", ServedKind(lane=Lane.CONTROL, on_request=handle))
    world.listen(services)
    world.hello()
    answers = world.say([ask(1), ask(2)])
    assert codes(answers) == [(MessageKind.ERROR, 1, "NOT_LEADER"), (MessageKind.ERROR, 2, "INTERNAL")]
    assert answers[0][2]["leader"] == "c" * 32
    assert "a bug" not in answers[1][2]["text"]


def test_nothing_passes_before_hello_and_each_call_in_it_hears_so() -> None:
    world = World()
    assert codes(world.say([ask(1), ask(2)])) == [
        (MessageKind.REFUSED, 0, "HELLO_FIRST"),
        (MessageKind.ERROR, 1, "HELLO_FIRST"),
        (MessageKind.ERROR, 2, "HELLO_FIRST"),
    ]
    assert world.requests == []


def test_a_successor_retires_its_predecessor_on_both_lanes() -> None:
    world = World()
    world.hello(routing_id=b"c")
    world.hello(Lane.BULK, routing_id=b"b")
    world.say([ask(1)], routing_id=b"c")
    assert world.requests[0].open
    successor = identity(2, run=6)
    world.hello(routing_id=b"c2", sender=successor)
    assert not world.requests[0].open
    for routing_id in (b"c", b"b"):
        answers = world.say([ask(2)], routing_id=routing_id)
        assert answers[0][2]["code"] == "STALE_SENDER"
    again = world.say([(MessageKind.HELLO, 1, 0, "", {"lane": 0, "window_bytes": 9}, [])], routing_id=b"c3")
    assert again[0][2]["code"] == "STALE_SENDER"
    world.say([ask(3)], routing_id=b"c2", sender=successor)
    assert [request.request_id for request in world.requests] == [1, 3]


def test_of_two_runs_the_later_one_stays_in_whatever_order_they_are_heard() -> None:
    world = World()
    successor = identity(2, run=6)
    world.hello(routing_id=b"c2", sender=successor)
    late = world.say([(MessageKind.HELLO, 1, 0, "", {"lane": 0, "window_bytes": 9}, [])], routing_id=b"c1")
    assert late[0][2]["code"] == "STALE_SENDER"
    world.say([ask(3)], routing_id=b"c2", sender=successor)
    assert [request.request_id for request in world.requests] == [3]


def test_a_new_connection_of_the_same_run_replaces_that_lane_only() -> None:
    world = World()
    world.hello(routing_id=b"c")
    world.hello(Lane.BULK, routing_id=b"b")
    world.hello(routing_id=b"c2")
    assert world.say([ask(1)], routing_id=b"c")[0][2]["code"] == "HELLO_FIRST"
    assert world.say([ask(2)], routing_id=b"c2") == []
    assert world.say([ask(3, "ask.bulk")], routing_id=b"b") == []
    assert [request.request_id for request in world.requests] == [2, 3]


def test_a_repeated_hello_is_answered_and_changes_nothing() -> None:
    world = World()
    world.hello()
    world.say([ask(1)])
    assert world.hello()[0][0] == MessageKind.HELLO
    assert world.requests[0].reply()


def test_a_message_from_the_future_is_refused_whole_before_the_clock_moves() -> None:
    world = World()
    world.hello()
    before = world.context.time.now()
    answers = world.say([ask(1)], timestamp=CLOCK_LIMIT + 1)
    assert codes(answers) == [(MessageKind.REFUSED, 0, "CLOCK"), (MessageKind.ERROR, 1, "CLOCK")]
    assert world.requests == []
    assert world.context.time.now() < before + 10


def test_a_message_of_another_cluster_does_not_move_the_clock() -> None:
    world = World()
    world.hello()
    stranger = identity(2, run=5, cluster="another")
    assert world.say([ask(1)], sender=stranger, timestamp=CLOCK_LIMIT)[0][2]["code"] == "WRONG_CLUSTER"
    assert world.context.time.now() < 1000


def test_replies_wait_for_the_callers_credit_and_go_when_it_comes() -> None:
    world = World(packet_bytes=1024)
    world.hello(window=4000)
    world.say([ask(number) for number in range(1, 7)])
    for request in world.requests:
        request.reply([b"x" * 1200])
    first = world.answers()
    assert 0 < len(first) < 6
    assert world.answers() == []
    came = list(first)
    while len(came) < 6:
        came.extend(world.say([(MessageKind.CREDIT, 0, 0, "", None, [])], credit=len(came) * 1456))
    assert [request_id for _, request_id, _ in came] == [1, 2, 3, 4, 5, 6]


def test_a_caller_that_never_reads_loses_its_connection_and_its_backlog() -> None:
    world = World(packet_bytes=1024, reply_backlog_bytes_max=1 << 16)
    world.hello(window=1000)
    for number in range(1, 100):
        world.say([ask(number)])
        if world.requests[-1].request_id == number:
            world.requests[-1].reply([b"x" * 2000])
            world.answers()
    assert world.metrics["wire_connections_overrun"] == 1
    assert world.say([ask(200)])[0][2]["code"] == "HELLO_FIRST"


def test_consumed_bytes_are_reported_after_a_quarter_of_the_window() -> None:
    world = World(control_window_bytes=1 << 16)
    world.hello()
    kinds = [world.say([("tell", 0, 0, "", None, [4000])], [b"x" * 4000]) for _ in range(5)]
    assert kinds[:3] == [[], [], []]
    assert [kind for answers in kinds for kind, _, _ in answers] == [MessageKind.CREDIT]


def test_a_ping_is_answered_and_silence_ends_a_connection() -> None:
    world = World()
    world.hello()
    assert world.say([(MessageKind.PING, 0, 0, "", None, [])]) == [(MessageKind.PONG, 0, {})]
    world.clock.now_us += IDLE_FACTOR * WireSettings().silence_ms_max * 1000 + 1
    world.socket_loop.deadlines.expire(world.clock.now_us)
    assert world.say([ask(1)])[0][2]["code"] == "HELLO_FIRST"


def test_a_caller_that_cannot_be_reached_is_forgotten() -> None:
    world = World()
    world.hello()
    world.say([ask(1), ask(2)])
    assert world.requests[1].open
    world.port.reachable = False
    world.requests[0].reply()
    world.listener.flush()
    assert not world.requests[1].open
    assert world.metrics["wire_connections_lost"] == 1
    world.say([ask(9)], recipient="")
    assert world.metrics["wire_refusals_unsent"] == 1


def test_more_connections_than_allowed_are_refused_at_hello() -> None:
    world = World(connections_max=4)
    for number in range(4):
        sender = identity(10 + number)
        assert world.hello(routing_id=b"%d" % number, sender=sender)[0][0] == MessageKind.HELLO
    refused = world.hello(routing_id=b"x", sender=identity(99))
    assert codes(refused) == [(MessageKind.REFUSED, 0, "OVERLOADED")]


def test_at_close_all_requests_are_abandoned() -> None:
    world = World()
    world.hello()
    world.say([ask(1)])
    assert world.requests[0].open
    world.listener.close()
    assert world.port.closed
    assert not world.socket_loop.owners
    assert not world.requests[0].open
    assert not world.requests[0].reply()


def test_more_frames_than_a_message_may_have_are_refused_even_when_announced() -> None:
    world = World()
    world.hello()
    lengths = [PACK_BELOW] * FRAMES_MAX
    answers = world.say([("ask", 1, 1000, "", None, lengths)], [b"", *[bytes(PACK_BELOW)] * FRAMES_MAX])
    assert world.requests == []
    assert answers[0][2]["code"] == "MALFORMED"
    assert "frames" in answers[0][2]["text"]


def test_every_header_tells_who_speaks_for_whom_to_whom() -> None:
    world = World()
    world.hello()
    world.say([ask(1)])
    world.requests[0].reply()
    world.listener.flush()
    ((_, frames),) = world.port.sent
    header = orjson.loads(bytes(frames[0]))
    me = world.context.identity
    assert header["protocol_version"] == 1
    assert header["cluster_id"] == me.cluster_id
    assert (header["sender"], header["sender_incarnation"]) == (me.node_id, me.incarnation_id)
    assert (header["recipient"], header["recipient_incarnation"]) == (PEER.node_id, PEER.incarnation_id)
    assert header["timestamp"] > 0


def test_a_packet_above_a_limit_ends_its_connection_because_its_credit_cannot_be_counted() -> None:
    """The sender's credit for it was never freed. Once it was used up, the connection carried nothing, for ever."""
    world = World(frame_bytes_max=64 << 10)
    world.hello()
    world.hello(routing_id=b"other", sender=identity(3))
    world.say([ask(1)])
    world.say([ask(2)], [b"x" * 100_000])
    assert world.metrics["wire_refused_too_large"] == 1
    assert [request.open for request in world.requests] == [False]
    assert world.say([ask(3)])[0][2]["code"] == "HELLO_FIRST", "the sender connects again"
    assert world.say([ask(4)], routing_id=b"other", sender=identity(3)) == []
