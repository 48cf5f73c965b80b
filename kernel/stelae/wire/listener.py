"""The incoming connections of a messenger: checks received packets, passes their messages on, and sends the answers.

A received packet can never raise an exception out of this module. If its envelope or its frames are wrong, the whole
packet is refused. If one message is wrong, for example of an unknown kind, only that message is refused. Every refusal
is counted by its code and answered if possible.

A sender's current incarnation is the one with the highest incarnation id of those that have sent a hello. Connections
of lower incarnations are dropped and their packets are refused, in whatever order they arrive.

Answers are collected into one packet per connection and turn. They wait while the caller's credit is used up; a caller
with too many waiting bytes is disconnected."""

from functools import partial
from typing import Final

from stelae.spi.errors import Overloaded, StelaeError, TooLarge
from stelae.spi.ids import IncarnationId, NodeId
from stelae.spi.services import Buffer
from stelae.wire.context import MessengerContext
from stelae.wire.credit import Credit
from stelae.wire.envelope import Envelope, MessageKind, check_addressee, check_hello, hello_address, hello_fields
from stelae.wire.faults import Direction
from stelae.wire.packets import Outbox, read_packet, unpack
from stelae.wire.refusals import HelloFirst, Malformed, StaleSender, error_fields
from stelae.wire.requests import InboundConnection, ServedKinds
from stelae.wire.settings import Lane
from stelae.wire.sockets import RouterSocket, SocketLoop, SocketOwner

#: A connection that has been silent for this many times ``silence_ms_max`` is dropped.
IDLE_FACTOR: Final = 3
#: Senders whose current incarnation is remembered. Those whose hello is longest ago are forgotten first.
INCARNATIONS_MAX: Final = 8192
#: Requests of a refused packet that are answered. The others reach their deadline.
REFUSALS_MAX: Final = 64


class Listener(SocketOwner):
    """See the module docstring. It listens as soon as it is constructed; ``address`` is the actual address."""

    def __init__(
        self, context: MessengerContext, services: ServedKinds, socket_loop: SocketLoop, host: str, port: int
    ) -> None:
        super().__init__(context, socket_loop)
        self._served_kinds = services
        self._connections: dict[bytes, InboundConnection] = {}
        #: The current incarnation of each sender, and when its first hello arrived, by the monotonic clock.
        self._current: dict[NodeId, tuple[IncarnationId, int]] = {}
        self._addresses: dict[NodeId, str] = {}
        self._unsent: dict[InboundConnection, None] = {}
        self.socket = self._router = socket_loop.open(self, RouterSocket, Lane.CONTROL)
        try:
            self.address = self._router.bind(host, port)
        except BaseException:
            self.close()
            raise
        socket_loop.deadlines.set(self, context.now_us())

    def address_of(self, node_id: NodeId) -> str:
        """Return where a node listens, as its last hello said; empty if it has said nothing."""
        return self._addresses.get(node_id, "")

    def on_due(self, now_us: int) -> None:
        silence_us = self._context.settings.silence_ms_max * 1000
        self._socket_loop.deadlines.set(self, now_us + silence_us)
        for connection in list(self._connections.values()):
            if now_us - connection.heard_us > IDLE_FACTOR * silence_us:
                self._drop(connection)

    def close(self) -> None:
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._socket_loop.leave(self)
        self._socket_loop.close_socket(self._router)

    def on_packet(self, frames: list[Buffer]) -> None:
        routing_id = bytes(frames[0])
        envelope: Envelope | None = None
        try:
            envelope = read_packet(frames[1:], self._context.settings)
            bodies, cost = unpack(envelope.messages, frames[2:])
            connection = self._connections.get(routing_id)
            speaker = envelope.sender, envelope.sender_incarnation
            if connection is not None and speaker != (connection.sender, connection.incarnation):
                raise HelloFirst(f"the hello of this connection was of another process than {envelope.sender}")
            if connection is None:
                self._check_current(*speaker)
            if envelope.messages and envelope.messages[0].kind == MessageKind.HELLO:
                self._greeted(routing_id, envelope)
                return
            if connection is None:
                raise HelloFirst("this connection has not said hello")
            check_addressee(envelope, self._context.identity)
            if connection.credit.consume(cost):
                connection.outbox.add(MessageKind.CREDIT)
            self._context.time.observe(envelope.timestamp)
        except StelaeError as error:
            self._refuse_message(routing_id, envelope, error)
            # Its credit cannot be counted. When too little is left, the connection would carry nothing any more.
            if isinstance(error, TooLarge) and routing_id in self._connections:
                self._drop(self._connections[routing_id])
            return
        self._context.through(connection.sender, Direction.INBOUND, partial(self._use, connection, envelope, bodies))

    def _check_current(self, sender: str, incarnation: str) -> None:
        current, since_us = self._current.get(NodeId(sender), ("", 0))
        if incarnation < current:
            ago_s = (self._context.now_us() - since_us) // 1_000_000
            fact = f"another process has used the node uuid {sender} for {ago_s} s and supersedes this incarnation"
            raise StaleSender(f"{fact}, {incarnation}; stop the other process, then start this one again")

    def _greeted(self, routing_id: bytes, envelope: Envelope) -> None:
        lane, window_bytes = check_hello(envelope, self._context.identity, None)
        sender, incarnation = NodeId(envelope.sender), IncarnationId(envelope.sender_incarnation)
        if sender == self._context.identity.node_id:
            raise Malformed("the sender of a hello has this node's own uuid")
        self._context.time.observe(envelope.timestamp)
        if len(self._connections) >= self._context.settings.connections_max and routing_id not in self._connections:
            raise Overloaded("this node has reached [wire] connections_max")
        if address := hello_address(envelope):
            self._addresses[sender] = address
            if len(self._addresses) > INCARNATIONS_MAX:
                del self._addresses[next(iter(self._addresses))]
        welcome = partial(self._welcome, routing_id, sender, incarnation, lane, window_bytes)
        self._context.through(sender, Direction.INBOUND, welcome)

    def _welcome(
        self, routing_id: bytes, sender: NodeId, incarnation: IncarnationId, lane: Lane, window_bytes: int
    ) -> None:
        hello = hello_fields(lane, self._context.settings, self._context.address)
        if routing_id in self._connections:  # A repeated hello.
            self._connections[routing_id].outbox.add(MessageKind.HELLO, fields=hello)
            return
        now_us = self._context.now_us()
        current = self._current.pop(sender, (incarnation, now_us))
        self._current[sender] = current = current if incarnation <= current[0] else (incarnation, now_us)
        if incarnation < current[0]:
            return  # The hello of a later incarnation arrived while the fault seam delayed this one.
        # This hello supersedes the sender's connection of the same lane, and all of its earlier incarnations.
        for old in list(self._connections.values()):
            if old.sender == sender and (old.lane is lane or old.incarnation != incarnation):
                self._drop(old)
        if len(self._current) > INCARNATIONS_MAX:
            del self._current[next(iter(self._current))]
        connection = InboundConnection(
            routing_id,
            sender,
            incarnation,
            lane,
            now_us,
            Credit(min(window_bytes, self._context.settings.window_bytes(lane))),
        )
        connection.outbox = Outbox(self._context.settings, partial(self._mark, connection))
        self._connections[routing_id] = connection
        connection.outbox.add(MessageKind.HELLO, fields=hello)

    def _use(self, connection: InboundConnection, envelope: Envelope, bodies: list[list[Buffer]]) -> None:
        if self._connections.get(connection.routing_id) is not connection:
            return  # The connection was dropped while the fault seam delayed this packet.
        connection.heard_us = now_us = self._context.now_us()
        if connection.credit.freed(envelope.credit):
            self._mark(connection)
        for message, body in zip(envelope.messages, bodies, strict=True):
            try:
                if message.kind == MessageKind.PING:
                    connection.outbox.add(MessageKind.PONG)
                elif message.kind == MessageKind.CANCEL:
                    self._served_kinds.abandon(connection.requests.get(message.request_id))
                elif message.kind != MessageKind.CREDIT:
                    self._served_kinds.dispatch(connection, message, body, now_us)
            except StelaeError as error:
                self._context.refused(error)
                kind = MessageKind.ERROR if message.request_id else MessageKind.REFUSED
                connection.outbox.add(kind, message.request_id, fields=error_fields(error))

    def _drop(self, connection: InboundConnection) -> None:
        """Drop a connection. If the peer sends on it again, it is asked for a hello."""
        self._connections.pop(connection.routing_id, None)
        for request in list(connection.requests.values()):
            self._served_kinds.abandon(request)
        self._unsent.pop(connection, None)
        connection.outbox.clear()

    def _mark(self, connection: InboundConnection) -> None:
        """Send the queue of a connection at the end of this turn."""
        self._socket_loop.flush_later(self)
        self._unsent[connection] = None

    def flush(self) -> None:
        unsent, self._unsent = self._unsent, {}
        for to in unsent:
            while (packet := to.outbox.take(to.credit)) is not None:
                self._context.write(packet, to.sender, to.incarnation, to.credit, partial(self._put, to))
            if to.outbox.cost > self._context.settings.reply_backlog_bytes_max:
                self._context.metrics.count("wire_connections_overrun")
                self._drop(to)

    def _put(self, connection: InboundConnection, frames: list[Buffer]) -> None:
        if not self._router.send([connection.routing_id, *frames]):
            self._context.metrics.count("wire_connections_lost")
            self._drop(connection)

    def _refuse_message(self, routing_id: bytes, envelope: Envelope | None, error: StelaeError) -> None:
        """Answer a refused packet: one refusal of the packet, and one error for each request in it."""
        self._context.refused(error)
        fields = error_fields(error)
        outbox = Outbox(self._context.settings, lambda: None)
        outbox.add(MessageKind.REFUSED, fields=fields)
        sender, incarnation = (envelope.sender, envelope.sender_incarnation) if envelope else ("", "")
        messages = envelope.messages if envelope else ()
        calls = [p for p in messages if p.request_id and p.kind not in MessageKind.CREDIT_FREE]
        for message in calls[:REFUSALS_MAX]:
            outbox.add(MessageKind.ERROR, message.request_id, fields=fields)
        while (packet := outbox.take()) is not None:
            self._context.write(packet, sender, incarnation, None, partial(self._put_refusal, routing_id))

    def _put_refusal(self, routing_id: bytes, frames: list[Buffer]) -> None:
        if not self._router.send([routing_id, *frames]):
            self._context.metrics.count("wire_refusals_unsent")
