"""The listening half of a messenger: checks what arrives, hands it on, and sends the answers.

Nothing that arrives can raise out of here. A message is used whole, or refused whole where its envelope or frames are
at fault; a parcel that nobody serves is refused alone. Every refusal is counted by code, and answered if it can be.

The highest incarnation id that said hello is a sender's current run: connections of lower ones are dropped, and what
arrives from them is refused, in whatever order they are heard. Replies are coalesced per connection and turn, and held
back while the caller's credit is used up; a caller that lets too much pile up loses its connection."""

from functools import partial
from typing import Final

from stelae.spi.errors import Overloaded, StelaeError
from stelae.spi.ids import IncarnationId, NodeId
from stelae.spi.services import Buffer
from stelae.wire.common import Common
from stelae.wire.edge import Edge, Party, RouterPort
from stelae.wire.envelope import Envelope, Kind, check_addressee, check_hello, hello_fields
from stelae.wire.faults import Direction
from stelae.wire.parcels import Credit, Outbox, read_message, unpack
from stelae.wire.refusals import HelloFirst, Malformed, StaleSender, error_fields
from stelae.wire.requests import Inbound, Services
from stelae.wire.settings import Lane

IDLE_FACTOR: Final = 3  # times ``silence_ms_max`` of silence, and a connection is nobody's
RUNS_MAX: Final = 8192  # senders whose current run is remembered; those that said hello longest ago go first
REFUSALS_MAX: Final = 64  # calls of a refused message that are answered; others meet their deadline


class Station(Party):
    """See the module. It listens from its construction on; ``address`` is the actual one."""

    def __init__(self, common: Common, services: Services, edge: Edge, host: str, port: int) -> None:
        super().__init__(common, edge)
        self._services = services
        self._connections: dict[bytes, Inbound] = {}
        self._current: dict[NodeId, tuple[IncarnationId, int]] = {}  #: And since when, by the monotonic clock.
        self._unsent: dict[Inbound, None] = {}
        self.port = self._router = edge.open(self, RouterPort, Lane.CONTROL)
        try:
            self.address = self._router.bind(host, port)
        except BaseException:
            self.close()
            raise
        edge.deadlines.set(self, common.now_us())

    def on_due(self, now_us: int) -> None:
        silence_us = self._common.settings.silence_ms_max * 1000
        self._edge.deadlines.set(self, now_us + silence_us)
        for connection in list(self._connections.values()):
            if now_us - connection.heard_us > IDLE_FACTOR * silence_us:
                self._drop(connection)

    def close(self) -> None:
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._edge.leave(self)
        self._edge.close_port(self._router)

    def arrived(self, frames: list[Buffer]) -> None:
        routing_id = bytes(frames[0])
        envelope: Envelope | None = None
        try:
            envelope = read_message(frames[1:], self._common.settings)
            bodies, cost = unpack(envelope.parcels, frames[2:])
            connection = self._connections.get(routing_id)
            speaker = envelope.sender, envelope.sender_incarnation
            if connection is not None and speaker != (connection.sender, connection.incarnation):
                raise HelloFirst(f"this connection is not that of this run of {envelope.sender}")
            if connection is None:
                self._check_current(*speaker)
            if envelope.parcels and envelope.parcels[0].kind == Kind.HELLO:
                self._greeted(routing_id, envelope)
                return
            if connection is None:
                raise HelloFirst("this connection has not said hello")
            check_addressee(envelope, self._common.identity)
            if connection.credit.consume(cost):
                connection.outbox.add(Kind.CREDIT)
            self._common.time.observe(envelope.timestamp)
        except StelaeError as error:
            self._refuse_message(routing_id, envelope, error)
            return
        self._common.through(connection.sender, Direction.INBOUND, partial(self._use, connection, envelope, bodies))

    def _check_current(self, sender: str, run: str) -> None:
        current, since_us = self._current.get(NodeId(sender), ("", 0))
        if run < current:
            ago_s = (self._common.now_us() - since_us) // 1_000_000
            fact = f"another process has run under uuid {sender} for {ago_s} s, and supersedes run {run}"
            raise StaleSender(f"{fact}; stop the other one, then start this one again")

    def _greeted(self, routing_id: bytes, envelope: Envelope) -> None:
        lane, window_bytes = check_hello(envelope, self._common.identity, None)
        sender, run = NodeId(envelope.sender), IncarnationId(envelope.sender_incarnation)
        if sender == self._common.identity.node_id:
            raise Malformed("a hello in this node's own name")
        self._common.time.observe(envelope.timestamp)
        if len(self._connections) >= self._common.settings.connections_max and routing_id not in self._connections:
            raise Overloaded("this node has as many connections as it takes")
        welcome = partial(self._welcome, routing_id, sender, run, lane, window_bytes)
        self._common.through(sender, Direction.INBOUND, welcome)

    def _welcome(self, routing_id: bytes, sender: NodeId, run: IncarnationId, lane: Lane, window_bytes: int) -> None:
        hello = hello_fields(lane, self._common.settings)
        if routing_id in self._connections:  # a hello that the network repeated
            self._connections[routing_id].outbox.add(Kind.HELLO, fields=hello)
            return
        now_us = self._common.now_us()
        current = self._current.pop(sender, (run, now_us))
        self._current[sender] = current = current if run <= current[0] else (run, now_us)
        if run < current[0]:
            return  # A later run said hello while the fault seam held this one back.
        # What this hello supersedes: the sender's connection of this lane, and its earlier runs.
        for old in list(self._connections.values()):
            if old.sender == sender and (old.lane is lane or old.incarnation != run):
                self._drop(old)
        if len(self._current) > RUNS_MAX:
            del self._current[next(iter(self._current))]
        credit = Credit(min(window_bytes, self._common.settings.window_bytes(lane)))
        connection = Inbound(routing_id, sender, run, lane, now_us, credit)
        connection.outbox = Outbox(self._common.settings, partial(self._mark, connection))
        self._connections[routing_id] = connection
        connection.outbox.add(Kind.HELLO, fields=hello)

    def _use(self, connection: Inbound, envelope: Envelope, bodies: list[list[Buffer]]) -> None:
        if self._connections.get(connection.routing_id) is not connection:
            return  # it was dropped while the fault seam held this message back
        connection.heard_us = now_us = self._common.now_us()
        if connection.credit.freed(envelope.credit):
            self._mark(connection)
        for parcel, body in zip(envelope.parcels, bodies, strict=True):
            try:
                if parcel.kind == Kind.PING:
                    connection.outbox.add(Kind.PONG)
                elif parcel.kind == Kind.CANCEL:
                    self._services.abandon(connection.requests.get(parcel.request_id))
                elif parcel.kind != Kind.CREDIT:
                    self._services.dispatch(connection, parcel, body, now_us)
            except StelaeError as error:
                self._common.refused(error)
                kind = Kind.ERROR if parcel.request_id else Kind.REFUSED
                connection.outbox.add(kind, parcel.request_id, fields=error_fields(error))

    def _drop(self, connection: Inbound) -> None:
        """Forget a connection; whoever speaks on it again is told to say hello."""
        self._connections.pop(connection.routing_id, None)
        for request in list(connection.requests.values()):
            self._services.abandon(request)
        self._unsent.pop(connection, None)
        connection.outbox.clear()

    def _mark(self, connection: Inbound) -> None:
        """Look at a connection's queue at the end of this turn."""
        self._edge.dirty(self)
        self._unsent[connection] = None

    def flush(self) -> None:
        unsent, self._unsent = self._unsent, {}
        for to in unsent:
            while (batch := to.outbox.take(to.credit)) is not None:
                self._common.write(batch, to.sender, to.incarnation, to.credit, partial(self._put, to))
            if to.outbox.cost > self._common.settings.reply_backlog_bytes_max:
                self._common.metrics.count("wire_connections_overrun")
                self._drop(to)

    def _put(self, connection: Inbound, frames: list[Buffer]) -> None:
        if not self._router.send([connection.routing_id, *frames]):
            self._common.metrics.count("wire_connections_lost")
            self._drop(connection)

    def _refuse_message(self, routing_id: bytes, envelope: Envelope | None, error: StelaeError) -> None:
        """Answer a message that was refused whole: once for it, and once per call in it."""
        self._common.refused(error)
        fields = error_fields(error)
        outbox = Outbox(self._common.settings, lambda: None)
        outbox.add(Kind.REFUSED, fields=fields)
        sender = run = ""
        if envelope is not None:
            sender, run = envelope.sender, envelope.sender_incarnation
            calls = [p for p in envelope.parcels if p.request_id and p.kind not in Kind.FREE]
            for parcel in calls[:REFUSALS_MAX]:
                outbox.add(Kind.ERROR, parcel.request_id, fields=fields)
        while (batch := outbox.take()) is not None:
            self._common.write(batch, sender, run, None, partial(self._put_refusal, routing_id))

    def _put_refusal(self, routing_id: bytes, frames: list[Buffer]) -> None:
        if not self._router.send([routing_id, *frames]):
            self._common.metrics.count("wire_refusals_unsent")
