"""A link: the outgoing connection of one lane to one peer. It reconnects until it is closed.

    IDLE -> RESOLVING -> CONNECTING -> GREETING -> UP
      ^---------- any failure, loss or silence -------'

If a name has several addresses, each attempt to connect uses the next one, until a peer answers.

A link has at most one connection at a time. Each connection has a new ``DealerSocket``, a new hello and new credit, so
that a message for a dead process never reaches its successor. While a link is not UP, it queues nothing: one-way
messages are dropped, and calls fail or are retried (``calls``)."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Final

from stelae.spi.errors import Overloaded, StelaeError, Unavailable
from stelae.spi.ids import ClusterId, IncarnationId, NodeId
from stelae.spi.services import Buffer
from stelae.wire.addresses import Resolve
from stelae.wire.call_retries import Call, CallTable, Response
from stelae.wire.context import MessengerContext
from stelae.wire.credit import Credit
from stelae.wire.envelope import Envelope, Message, MessageKind, check_addressee, check_hello, hello_fields
from stelae.wire.faults import Direction
from stelae.wire.packets import Outbox, read_packet, unpack
from stelae.wire.refusals import Fields, Malformed, Misdirected, StaleSender, UnknownKind, error_of
from stelae.wire.settings import MESSAGE_COST, Lane
from stelae.wire.sockets import DealerSocket, Socket, SocketLoop, SocketOwner

_log = logging.getLogger(__name__)

#: How long a lookup of a name is waited for, in milliseconds. If the first of several name servers is down, each lookup
#: takes several seconds: a new lookup in its place would take as long.
RESOLVE_MS_MAX: Final = 30_000


class LinkState(StrEnum):
    """The state of a link's connection."""

    IDLE = "IDLE"
    RESOLVING = "RESOLVING"
    CONNECTING = "CONNECTING"
    GREETING = "GREETING"
    UP = "UP"
    CLOSED = "CLOSED"


class Link(SocketOwner):
    """See the module docstring."""

    def __init__(
        self,
        context: MessengerContext,
        socket_loop: SocketLoop,
        resolve: Resolve,
        changed: Callable[["Link", StelaeError | None], None],
        lane: Lane,
        address: str,
        peer: NodeId | None,
    ) -> None:
        """``changed(link, error)`` is called with ``None`` when the link is UP, and with the reason when it is lost.

        ``peer`` is ``None`` if only the address is known; the link then learns the node id from the answer to hello."""
        super().__init__(context, socket_loop)
        self._resolve, self._changed = resolve, changed
        self.lane, self.address, self.peer = lane, address, peer
        self.peer_incarnation: IncarnationId | None = None
        self.state = LinkState.IDLE
        self.last_failure: StelaeError | None = None
        self._opened = self._failures = self._heard_us = self._asked_us = 0
        self._place = 0  # Place of the address to connect to, among those of the name.
        self._credit = Credit(context.settings.window_bytes(lane))
        self._outbox = Outbox(context.settings, partial(socket_loop.flush_later, self))
        self.calls = CallTable(self._transmit, self._cancel, socket_loop.deadlines, context.rng)

    @property
    def up(self) -> bool:
        return self.state is LinkState.UP

    @property
    def hindrance(self) -> str:
        """Why the link is not UP, in words."""
        resolving = self.state is LinkState.RESOLVING
        return str(self.last_failure or (f"the name in {self.address} is looked up" if resolving else "not yet"))

    def open(self) -> None:
        """Start to connect: resolve the address first."""
        self._opened += 1
        self.state = LinkState.RESOLVING
        self._set_due(RESOLVE_MS_MAX)
        self._resolve(self.address, partial(self._resolved, self._opened))

    def restart(self, reason: str) -> None:
        """Drop the connection and reconnect after a pause."""
        self._lose(Unavailable(reason))

    def move(self, address: str) -> None:
        """Change the peer's address. If it differs, reconnect."""
        if address != self.address:
            self.address, self._failures = address, 0
            self.restart("the peer's address changed")

    def send(self, kind: str, frames: Sequence[Buffer], lengths: list[int], fields: Fields | None) -> bool:
        """Queue a one-way message. Return False, and drop it, if the link is not UP or its credit is used up."""
        if not self.up or not self._credit.take(MESSAGE_COST + sum(lengths)):
            return False
        self._outbox.add(kind, 0, 0, "", fields, frames, lengths)
        return True

    def close(self, error: StelaeError) -> None:
        """Close the link for good. Its calls fail with ``error``."""
        self.state = LinkState.CLOSED
        self._drop_connection()
        self.calls.fail_all(error)

    def flush(self) -> None:
        while (packet := self._outbox.take()) is not None:
            peer, incarnation = self.peer or "", self.peer_incarnation or ""
            self._context.write(packet, peer, incarnation, self._credit, partial(self._put, self.socket))

    def on_ready(self) -> None:
        super().on_ready()
        if self.socket is None:
            return
        readable, writable = self.socket.events()
        if self.state is LinkState.CONNECTING and writable:
            self.state = LinkState.GREETING
            self._credit = Credit(self._context.settings.window_bytes(self.lane))
            hello = hello_fields(self.lane, self._context.settings, self._context.address)
            self._outbox.add(MessageKind.HELLO, fields=hello)
        elif self.state in (LinkState.GREETING, LinkState.UP) and not writable:
            self.restart("the connection was closed, or the peer does not read")
        if readable:
            self._socket_loop.flush_later(self)  # It arrived after ``drain``, and the loop gets no signal of it.

    def is_ready(self) -> bool:
        if self.socket is None:
            return False
        readable, writable = self.socket.events()
        return readable or writable is (self.state is LinkState.CONNECTING)

    def on_due(self, now_us: int) -> None:
        settings, silence_us = self._context.settings, now_us - self._heard_us
        if self.state is LinkState.IDLE:
            self.open()
        elif self.state is LinkState.RESOLVING:
            self.restart(f"the name in {self.address} was not resolved within {RESOLVE_MS_MAX} ms")
        elif self.state is not LinkState.UP:
            self.restart(f"no answer to hello within {settings.connect_timeout_ms} ms")
        elif self._heard_us < self._asked_us < now_us - (settings.silence_ms_max - settings.ping_ms) * 1000:
            self.restart("the peer is silent")
        else:
            if silence_us >= settings.ping_ms * 1000:
                # The peer's silence counts from the first ping without an answer, not from its last packet: this
                # process may have been paused since.
                self._asked_us = now_us if self._asked_us <= self._heard_us else self._asked_us
                self._outbox.add(MessageKind.PING)
            self._set_due(settings.ping_ms)

    def on_packet(self, frames: list[Buffer]) -> None:
        connection = self.socket
        try:
            envelope = read_packet(frames, self._context.settings)
            if self.state is LinkState.GREETING:
                self._greeted(envelope)
                return
            check_addressee(envelope, self._context.identity)
            if (envelope.sender, envelope.sender_incarnation) != (self.peer, self.peer_incarnation):
                raise StaleSender(f"a packet of node {envelope.sender} on the link to node {self.peer}")
            bodies, cost = unpack(envelope.messages, frames[1:])
            if self._credit.consume(cost):
                self._outbox.add(MessageKind.CREDIT)
            self._context.time.observe(envelope.timestamp)
        except StelaeError as error:
            self._context.refused(error)
            if self.state is LinkState.GREETING:
                self._lose(error)
            return
        self._context.through(envelope.sender, Direction.INBOUND, partial(self._use, connection, envelope, bodies))

    def _resolved(self, opened: int, addresses: Sequence[tuple[str, int]]) -> None:
        if opened != self._opened or self.state is not LinkState.RESOLVING:
            return
        if not addresses:
            self.restart(f"the name in {self.address} cannot be resolved")
            return
        self.state = LinkState.CONNECTING
        self._set_due(self._context.settings.connect_timeout_ms)
        self.socket = connection = self._socket_loop.open(self, DealerSocket, self.lane)
        connection.connect(*addresses[self._place % len(addresses)])
        self.on_ready()

    def _greeted(self, envelope: Envelope) -> None:
        """Handle the first answer on a connection: a hello, or a refusal, which is raised."""
        if not envelope.messages:
            raise Malformed("an empty answer to hello")
        if envelope.messages[0].kind == MessageKind.REFUSED:
            raise error_of(envelope.messages[0].fields)
        _, window_bytes = check_hello(envelope, self._context.identity, self.peer)
        self._context.time.observe(envelope.timestamp)
        welcomed = partial(self._welcomed, self.socket, envelope, window_bytes)
        self._context.through(envelope.sender, Direction.INBOUND, welcomed)

    def _welcomed(self, connection: Socket | None, envelope: Envelope, window_bytes: int) -> None:
        if connection is not self.socket or self.state is not LinkState.GREETING:
            return
        self.peer = NodeId(envelope.sender)
        self.peer_incarnation = IncarnationId(envelope.sender_incarnation)
        if not self._context.identity.cluster_id:
            self._context.identity = replace(self._context.identity, cluster_id=ClusterId(envelope.cluster_id))
        self._credit.window_bytes = min(self._credit.window_bytes, window_bytes)
        self.state, self._failures = LinkState.UP, 0
        self._heard_us = now_us = self._context.now_us()
        self._set_due(self._context.settings.ping_ms)
        _log.debug("link up peer=%s lane=%s", self.peer, self.lane.name)
        self._changed(self, None)
        self.calls.link_up(now_us)

    def _lose(self, error: StelaeError) -> None:
        """Drop the connection. Reconnect after a pause with jitter that doubles with each failure."""
        if self.state in (LinkState.CLOSED, LinkState.IDLE):
            return
        settings, metrics = self._context.settings, self._context.metrics
        metrics.count("wire_links_lost" if self.up else "wire_links_failed")
        self._place += self.state in (LinkState.CONNECTING, LinkState.GREETING)  # Try the next address of the name.
        self.state, self.last_failure = LinkState.IDLE, error
        self._drop_connection()
        ceiling_ms = min(settings.reconnect_ms_max, settings.reconnect_ms_min << self._failures)
        self._failures = min(self._failures + 1, 16)
        self._set_due(ceiling_ms * (0.5 + self._context.rng.random() / 2))
        _log.debug("link lost peer=%s lane=%s reason=%s", self.peer, self.lane.name, error)
        self._changed(self, error)
        self.peer_incarnation = None
        lost = Unavailable(f"the connection to {self.address} was lost: {error}")
        self.calls.link_lost(lost, self._context.now_us())

    def _drop_connection(self) -> None:
        self._opened += 1
        self._outbox.clear()
        if self.socket is not None:
            self._socket_loop.close_socket(self.socket)
            self.socket = None

    def _set_due(self, delay_ms: float) -> None:
        self._socket_loop.deadlines.set(self, self._context.now_us() + int(delay_ms * 1000))

    def _transmit(self, call: Call, now_us: int) -> StelaeError | None:
        if not self.up:
            return Unavailable(f"not connected to {self.peer or self.address}: {self.hindrance}")
        if not self._credit.take(MESSAGE_COST + sum(call.lengths)):
            return Overloaded(f"the link to {self.peer} has used up its byte credit")
        left_ms = max(1, (call.deadline_us - now_us) // 1000)
        self._outbox.add(call.kind, call.request_id, left_ms, call.trace_id, call.fields, call.frames, call.lengths)
        return None

    def _cancel(self, request_id: int) -> None:
        if self.up:
            self._outbox.add(MessageKind.CANCEL, request_id)

    def _put(self, connection: Socket | None, frames: Sequence[Buffer]) -> None:
        if connection is self.socket and connection is not None and not connection.send(frames):
            self.restart("the connection was closed, or the peer does not read")

    def _use(self, connection: Socket | None, envelope: Envelope, bodies: list[list[Buffer]]) -> None:
        if connection is not self.socket:
            return  # The connection was lost while the fault seam delayed this packet.
        self._heard_us = self._context.now_us()
        self._credit.freed(envelope.credit)
        for message, body in zip(envelope.messages, bodies, strict=True):
            self._use_message(NodeId(envelope.sender), message, body)

    def _use_message(self, sender: NodeId, message: Message, body: list[Buffer]) -> None:
        kind, fields, expected = message.kind, message.fields or {}, True
        if kind == MessageKind.REPLY:
            expected = self.calls.answer(message.request_id, Response(sender=sender, body=body, fields=fields))
        elif kind == MessageKind.ERROR:
            expected = self.calls.refuse(message.request_id, error_of(fields), self._heard_us)
        elif kind == MessageKind.REFUSED:
            error = error_of(fields)
            self._context.metrics.count(f"wire_refused_by_peer_{error.code.lower()}")
            if isinstance(error, Misdirected):
                self._lose(error)
        elif kind not in (MessageKind.PONG, MessageKind.CREDIT, MessageKind.HELLO):
            self._context.refused(UnknownKind(f"{kind!r} is not a kind of answer"))
        if not expected:
            self._context.metrics.count("wire_answers_unawaited")
