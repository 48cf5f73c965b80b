"""A link without a socket: how it comes up, what it refuses, when it gives a connection up."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from stelae.local.chaos.network_rules import FaultRule, Faults
from stelae.spi.errors import StelaeError, Unavailable
from stelae.spi.ids import NodeId
from stelae.spi.services import Buffer
from stelae.wire.envelope import Envelope, Identity, MessageKind, encode_envelope, hello_fields
from stelae.wire.faults import Direction
from stelae.wire.link import Link, LinkState
from stelae.wire.settings import Lane, WireSettings
from tests.unit.wire.worlds import CLOCK_LIMIT, SocketLoop, context, identity

ME, PEER = identity(1), identity(2, run=5)


class Socket:
    """A connection played by hand."""

    def __init__(self) -> None:
        self.connected: list[tuple[str, int]] = []
        self.sent: list[list[Buffer]] = []
        self.inbox: list[list[Buffer]] = []
        self.arriving: list[list[Buffer]] = []
        self.open = False
        self.closed = False

    def connect(self, host: str, port: int) -> None:
        self.connected.append((host, port))

    def events(self) -> tuple[bool, bool]:
        self.inbox += self.arriving
        self.arriving.clear()
        return bool(self.inbox), self.open and not self.closed

    def send(self, frames: Any) -> bool:
        if self.open:
            self.sent.append(list(frames))
        return self.open

    def drain(self, handle: Any, messages_max: int) -> bool:
        while self.inbox and messages_max and not self.closed:
            handle(self.inbox.pop(0))
            messages_max -= 1
        return not self.inbox

    def close(self) -> None:
        self.closed = True


def encoded(
    messages: list[tuple[object, ...]],
    sender: Identity = PEER,
    recipient: Identity = ME,
    timestamp: int = 1,
    credit: int = 0,
) -> bytes:
    return encode_envelope(
        sender,
        recipient=recipient.node_id,
        incarnation=recipient.incarnation_id,
        timestamp=timestamp,
        credit=credit,
        messages=messages,
    )


class World:
    """A link on manual time; ``port`` is its present connection, if any."""

    def __init__(
        self,
        *,
        peer: NodeId | None = PEER.node_id,
        resolved: bool = True,
        faults: Faults | None = None,
        **settings: Any,
    ) -> None:
        self.context = context(1, settings=WireSettings(**settings), faults=faults)
        self.socket_loop = SocketLoop(Socket())
        self.changes: list[str] = []
        self.resolutions: list[Any] = []
        self.link = Link(
            self.context,
            self.socket_loop,  # type: ignore[arg-type]
            lambda address, done: self.resolutions.append(done),
            lambda link, error: self.changes.append("up" if error is None else str(error)),
            lane=Lane.CONTROL,
            address="node-2.example:7051",
            peer=peer,
        )
        self.link.open()
        if resolved:
            self.resolutions[-1]([("127.0.0.1", 7051)])

    @property
    def port(self) -> Any:
        return self.socket_loop.port

    @property
    def metrics(self) -> Any:
        return self.context.metrics

    def connect(self) -> None:
        """The connection comes about, and the hello goes out."""
        self.port.open = True
        self.link.on_ready()
        self.link.flush()

    def hear(
        self,
        messages: list[tuple[object, ...]],
        *,
        body: list[bytes] | None = None,
        sender: Identity = PEER,
        recipient: Identity = ME,
        timestamp: int = 1,
        credit: int = 0,
    ) -> None:
        self.port.inbox.append([encoded(messages, sender, recipient, timestamp, credit), *(body or [])])
        self.link.on_ready()

    def welcome(self, **how: Any) -> None:
        self.connect()
        fields = hello_fields(Lane.CONTROL, self.context.settings, "")
        self.hear([(MessageKind.HELLO, 1, 0, "", fields, [])], **how)

    def said(self) -> list[str]:
        self.link.flush()
        sent, self.port.sent = self.port.sent, []
        return [
            message.kind for frames in sent for message in msgspec.json.decode(bytes(frames[0]), type=Envelope).messages
        ]

    def pass_time(self, ms: int) -> None:
        self.context.clock.now_us += ms * 1000  # type: ignore[attr-defined]
        self.socket_loop.deadlines.expire(self.context.now_us())

    def reopen(self) -> None:
        """Let the pause pass and the name resolve again, on a new connection."""
        self.socket_loop.port = Socket()
        self.pass_time(500)
        self.resolutions[-1]([("127.0.0.1", 7051)])


def test_a_link_comes_up_by_name_connection_and_hello() -> None:
    world = World(resolved=False)
    assert world.link.state is LinkState.RESOLVING
    world.resolutions[0]([("127.0.0.1", 7051)])
    assert world.link.state is LinkState.CONNECTING
    assert world.port.connected == [("127.0.0.1", 7051)]
    world.connect()
    assert world.link.state is LinkState.GREETING
    assert world.said() == [MessageKind.HELLO]
    world.hear([(MessageKind.HELLO, 1, 0, "", hello_fields(Lane.CONTROL, WireSettings(), ""), [])])
    assert world.link.up
    assert world.link.peer_incarnation == PEER.incarnation_id
    assert world.changes == ["up"]


def test_nothing_is_queued_while_a_link_is_not_up() -> None:
    world = World()
    assert not world.link.send("note", [b"x"], [1], None)
    world.connect()
    assert not world.link.send("note", [b"x"], [1], None)
    world.welcome()
    assert world.link.send("note", [b"x"], [1], None)
    assert world.said() == [MessageKind.HELLO, "note"]


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"sender": identity(3)}, "wrong_recipient"),
        ({"sender": identity(2, cluster="another")}, "wrong_cluster"),
        ({"recipient": identity(4)}, "wrong_recipient"),
        ({"timestamp": CLOCK_LIMIT + 1}, "clock"),
    ],
)
def test_a_welcome_of_anybody_else_is_refused_and_another_connection_tried(how: dict[str, Any], code: str) -> None:
    world = World()
    world.welcome(**how)
    assert world.link.state is LinkState.IDLE
    assert world.port.closed
    assert world.metrics[f"wire_refused_{code}"] == 1
    assert world.changes != ["up"]
    assert world.context.time.now() < 100
    world.reopen()
    world.welcome()
    assert world.link.up


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"sender": identity(3)}, "stale_sender"),
        ({"sender": identity(2, run=6)}, "stale_sender"),
        ({"sender": identity(2, run=5, cluster="another")}, "wrong_cluster"),
        ({"recipient": identity(4)}, "wrong_recipient"),
        ({"recipient": identity(1, run=77)}, "stale_recipient"),
        ({"timestamp": CLOCK_LIMIT + 1}, "clock"),
        ({"body": [b"unannounced"]}, "malformed"),
    ],
)
def test_an_answer_that_fails_the_envelopes_checks_is_refused_and_counted(how: dict[str, Any], code: str) -> None:
    world = World()
    world.welcome()
    world.hear([(MessageKind.REPLY, 1, 0, "", None, [])], **how)
    assert world.metrics[f"wire_refused_{code}"] == 1
    assert world.metrics["wire_answers_unawaited"] == 0
    assert world.link.up


def test_a_refusal_tells_the_time_of_the_node_that_refuses() -> None:
    """A node whose clock was set back learns from it that its peers are behind (``HybridClock``)."""
    world = World()
    world.welcome()
    world.hear([(MessageKind.REFUSED, 0, 0, "", {"code": "CLOCK", "reason": "ahead"}, [])], timestamp=5_000)
    assert world.context.time.now() == 5_001 and world.link.up


def test_a_request_where_answers_are_due_is_refused() -> None:
    world = World()
    world.welcome()
    world.hear([("ask", 1, 1000, "", None, [])])
    assert world.metrics["wire_refused_unknown_kind"] == 1


@pytest.mark.parametrize("code", ["HELLO_FIRST", "STALE_RECIPIENT", "WRONG_RECIPIENT"])
def test_a_refusal_of_the_connection_itself_reopens_it(code: str) -> None:
    world = World()
    world.welcome()
    world.hear([(MessageKind.REFUSED, 0, 0, "", {"code": code, "text": "told so"}, [])])
    assert world.link.state is LinkState.IDLE
    assert world.metrics[f"wire_refused_by_peer_{code.lower()}"] == 1
    assert "told so" in world.changes[-1]


def test_a_refusal_of_one_message_leaves_the_link_up() -> None:
    world = World()
    world.welcome()
    world.hear([(MessageKind.REFUSED, 0, 0, "", {"code": "UNKNOWN_KIND", "text": "?"}, [])])
    assert world.link.up
    assert world.metrics["wire_refused_by_peer_unknown_kind"] == 1


def test_an_idle_link_is_pinged_and_a_silent_one_is_given_up() -> None:
    world = World(ping_ms=100, silence_ms_max=350)
    world.welcome()
    world.said()
    world.pass_time(100)
    assert world.said() == [MessageKind.PING]
    world.hear([(MessageKind.PONG, 0, 0, "", None, [])])
    for _ in range(4):
        world.pass_time(100)
        assert world.link.up == (_ < 3)
    assert "silent" in world.changes[-1]


def test_a_peer_that_was_not_asked_while_this_loop_stood_still_is_not_silent() -> None:
    """A process that was held up for as long lost all its connections, and then all its calls."""
    world = World(ping_ms=100, silence_ms_max=350)
    world.welcome()
    world.said()
    world.pass_time(5000)
    assert world.link.up and world.said() == [MessageKind.PING]
    world.pass_time(100)
    world.hear([(MessageKind.PONG, 0, 0, "", None, [])])
    for _ in range(4):
        world.pass_time(100)
        assert world.link.up == (_ < 3)


def test_a_closed_connection_is_noticed_at_once() -> None:
    world = World()
    world.welcome()
    world.port.open = False
    world.link.on_ready()
    assert world.link.state is LinkState.IDLE


def test_an_answer_that_arrives_between_draining_and_the_test_of_the_connection_is_read() -> None:
    """The test consumed the signal of the packet and looked at the connection only: the answer lay unread until the
    next ping, for up to a second."""
    world = World()
    world.welcome()
    world.said()
    flushes = world.socket_loop.flushes
    world.port.arriving.append([encoded([(MessageKind.REPLY, 1, 0, "", None, [])])])
    world.link.on_ready()
    assert world.socket_loop.flushes == flushes + 1
    assert world.link.is_ready(), "so the loop calls it again after it has flushed"
    world.link.on_ready()
    assert world.metrics["wire_answers_unawaited"] == 1 and not world.link.is_ready()


def test_a_link_is_ready_for_a_packet_and_for_a_change_of_its_connection() -> None:
    """Sending and draining consume the signal of a connection that came or was lost, as that of a packet."""
    world = World()
    assert not world.link.is_ready(), "it connects"
    world.port.open = True
    assert world.link.is_ready(), "the connection has come"
    world.connect()
    assert not world.link.is_ready()
    world.welcome()
    assert not world.link.is_ready()
    world.port.open = False
    assert world.link.is_ready(), "the connection is lost"
    world.link.on_ready()
    assert not world.link.is_ready(), "it has none"


def test_a_message_that_cannot_be_written_gives_the_connection_up() -> None:
    world = World()
    world.welcome()
    assert world.link.send("note", [], [], None)
    world.port.open = False
    world.link.flush()
    assert world.link.state is LinkState.IDLE


def test_a_connection_without_a_hello_in_time_is_given_up_and_pauses_grow_with_jitter() -> None:
    world = World(connect_timeout_ms=200, reconnect_ms_min=20, reconnect_ms_max=400)
    pauses = []
    for _ in range(9):
        world.pass_time(200)
        assert world.link.state is LinkState.IDLE
        pauses.append((world.socket_loop.woken[-1] - world.context.now_us()) / 1000)
        world.reopen()
        assert world.link.state is LinkState.CONNECTING
    assert 10 <= pauses[0] <= 20
    assert all(200 <= pause <= 400 for pause in pauses[-3:])
    assert len(set(pauses)) == len(pauses)


def test_a_name_without_an_address_is_asked_for_again() -> None:
    world = World(resolved=False)
    world.resolutions[-1]([])
    assert "cannot be resolved" in world.changes[-1]
    world.pass_time(500)
    assert len(world.resolutions) == 2
    world.pass_time(30_000)
    assert world.link.state is LinkState.IDLE
    assert "was not resolved within 30000 ms" in world.changes[-1]


def test_a_slow_lookup_is_waited_for_and_the_time_to_connect_begins_behind_it() -> None:
    """Where each lookup took longer than a connection may take, no link by name ever came up: its answers were of
    earlier attempts. And each attempt left a thread that waited for the name server."""
    world = World(resolved=False)
    for _ in range(10):
        world.pass_time(500)
    assert len(world.resolutions) == 1
    assert "node-2.example:7051 is looked up" in world.link.hindrance
    world.resolutions[0]([("127.0.0.1", 7051)])
    world.pass_time(490)
    world.welcome()
    assert world.link.up


def test_each_address_of_a_name_is_tried_until_one_answers() -> None:
    """A node that listened on IPv4 only was never reached by a name that has an IPv6 address too."""
    world = World(resolved=False)
    addresses = [("::1", 7051), ("127.0.0.1", 7051), ("10.0.0.3", 7051)]
    world.resolutions[-1](addresses)
    assert world.port.connected == addresses[:1]
    world.pass_time(500)
    for _ in range(2):  # Also after a connection that was lost.
        world.socket_loop.port = Socket()
        world.pass_time(500)
        world.resolutions[-1](addresses)
        world.welcome()
        assert world.port.connected == addresses[1:2] and world.link.up
        world.link.restart("for the test")


def test_a_late_answer_of_the_name_server_to_an_earlier_question_is_ignored() -> None:
    world = World(resolved=False)
    world.link.move("elsewhere.example:1")
    world.pass_time(500)
    world.resolutions[0]([("10.0.0.1", 1)])
    assert world.port.connected == []
    world.resolutions[1]([("10.0.0.2", 1)])
    assert world.port.connected == [("10.0.0.2", 1)]


def test_the_smaller_of_both_windows_counts_and_credit_comes_with_any_answer() -> None:
    world = World()
    world.connect()
    world.hear([(MessageKind.HELLO, 1, 0, "", {"lane": 0, "window_bytes": 2000}, [])])
    taken = 0
    while world.link.send("note", [bytes(244)], [244], None):
        taken += 1
    assert taken == 4
    world.hear([(MessageKind.CREDIT, 0, 0, "", None, [])], credit=2000)
    assert world.link.send("note", [bytes(244)], [244], None)


def test_a_new_connection_begins_with_full_credit_and_empty_sums() -> None:
    world = World(control_window_bytes=1 << 16)
    world.welcome()
    while world.link.send("note", [bytes(1000)], [1000], None):
        pass
    world.hear([(MessageKind.REPLY, 9, 0, "", None, [4000])], body=[bytes(4000)])
    world.link.restart("for the test")
    world.reopen()
    world.welcome()
    assert world.link.send("note", [bytes(1000)], [1000], None)
    world.link.flush()
    credits = [msgspec.json.decode(bytes(f[0]), type=Envelope).credit for f in world.port.sent]
    assert credits == [0, 0]


def test_consumed_answers_are_reported_after_a_quarter_of_the_window() -> None:
    world = World(control_window_bytes=1 << 16)
    world.welcome()
    world.said()
    for _ in range(4):
        world.hear([(MessageKind.REPLY, 9, 0, "", None, [4000])], body=[bytes(4000)])
    assert world.said() == [MessageKind.CREDIT]
    assert world.metrics["wire_answers_unawaited"] == 4


def test_what_the_seam_holds_back_does_not_reach_a_later_connection() -> None:
    faults = Faults(random.Random(1))
    world = World(faults=faults)
    world.welcome()
    faults.rules[(None, Direction.OUTBOUND)] = FaultRule(delay_ms_min=50, delay_ms_max=50)
    assert world.link.send("note", [], [], None)
    assert world.said() == [MessageKind.HELLO]
    world.link.restart("for the test")
    faults.rules.clear()
    world.reopen()
    world.welcome()
    world.context.call_later.fire()  # type: ignore[attr-defined]
    assert world.said() == [MessageKind.HELLO]


def test_what_the_seam_loses_takes_no_credit() -> None:
    faults = Faults(random.Random(1))
    world = World(faults=faults, control_window_bytes=1 << 16)
    world.welcome()
    faults.partition(PEER.node_id, inbound=False)
    for _ in range(1000):
        assert world.link.send("note", [bytes(1000)], [1000], None)
        world.link.flush()
    assert world.metrics["wire_faults_dropped"] == 1000


def test_closing_is_final() -> None:
    world = World()
    world.welcome()
    world.link.close(Unavailable("closing"))
    assert world.port.closed
    world.pass_time(100_000)
    world.link.on_ready()
    world.link.restart("again")
    assert world.link.state is LinkState.CLOSED
    assert len(world.resolutions) == 1


def test_a_link_never_raises_for_what_arrives() -> None:
    rng = random.Random(11)
    for greeting in (True, False):
        for _ in range(300):
            world = World()
            world.connect()
            if not greeting:
                world.welcome()
            noise = bytes(rng.getrandbits(8) for _ in range(int(rng.random() * 60)))
            world.port.inbox.append([noise, noise])
            try:
                world.link.on_ready()
            except StelaeError as error:
                pytest.fail(f"raised {error!r}")
            assert world.metrics["wire_refused_total"] == 1
