"""The listening half of a messenger: checks what arrives and hands it on.

Nothing that arrives can raise out of here. A message is used whole, or refused whole where its
envelope or its frames are at fault; a parcel that nobody serves is refused alone. Every refusal is
counted by its code, and answered where an answer can be addressed.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from stelae.spi.errors import Overloaded, StelaeError
from stelae.spi.ids import IncarnationId, NodeId
from stelae.spi.services import Buffer
from stelae.wire.common import Common, read_message
from stelae.wire.connections import Connections, Inbound
from stelae.wire.credit import ReceiveCredit, SendCredit
from stelae.wire.departures import Departures
from stelae.wire.dispatch import Dispatcher
from stelae.wire.edge import Edge
from stelae.wire.envelope import Envelope, Parcel, check_addressee
from stelae.wire.hello import Greeting, hello_fields, read_greeting
from stelae.wire.parcels import CANCEL, CREDIT, HELLO, PING, PONG, unpack
from stelae.wire.refusals import HelloFirst, Malformed, StaleSender
from stelae.wire.services import Services

IDLE_FACTOR: Final = 3
"""A connection silent for this many times ``silence_ms_max`` belongs to nobody any more."""


class Station:
    """See the module. It listens from its construction on; ``address`` is the actual one.

    All methods run on the loop, and none blocks.
    """

    def __init__(
        self, common: Common, services: Services, edge: Edge, host: str, port: int
    ) -> None:
        self._common = common
        self._edge = edge
        self._port, actual = edge.open_router(self, host, port)
        self.address = f"[{host}]:{actual}" if ":" in host else f"{host}:{actual}"
        self._connections = Connections()
        self._departures = Departures(common, self._port, partial(edge.dirty, self), self._drop)
        self._dispatcher = Dispatcher(common, services, self._departures, edge.wake_at)
        self._sweep_due_us = common.now_us()
        edge.join(self)
        edge.wake_at(self._sweep_due_us)

    def drain(self) -> bool:
        """Take what arrived, up to a limit; say whether nothing is left."""
        return self._port.drain(self.arrived, self._common.settings.drain_messages_max)

    def readable(self) -> bool:
        """Whether messages wait."""
        return self._port.readable()

    def on_ready(self) -> None:
        """The socket's state changed."""
        if not self.drain():
            self._edge.dirty(self)

    def flush(self) -> None:
        """Write what was queued."""
        self._departures.flush()

    def on_time(self, now_us: int) -> None:
        """Abandon requests past their deadline, and connections that nobody speaks on."""
        self._dispatcher.on_time(now_us)
        if now_us < self._sweep_due_us:
            return
        silence_us = self._common.settings.silence_ms_max * 1000
        self._sweep_due_us = now_us + silence_us
        for connection in self._connections.all():
            if now_us - connection.heard_us > IDLE_FACTOR * silence_us:
                self._drop(connection)

    def next_due_us(self) -> int:
        """When ``on_time`` is wanted."""
        requests_us = self._dispatcher.next_due_us()
        return self._sweep_due_us if requests_us is None else min(self._sweep_due_us, requests_us)

    def close(self) -> None:
        """Abandon all requests and stop listening."""
        for connection in self._connections.all():
            self._drop(connection)
        self._edge.leave(self)
        self._edge.close_port(self._port)

    def arrived(self, frames: list[Buffer]) -> None:
        """Take one message from the socket; ``frames[0]`` is the routing id."""
        routing_id = bytes(frames[0])
        envelope: Envelope | None = None
        try:
            envelope = read_message(frames[1:], self._common.settings)
            connection = self._connections.get(routing_id)
            bodies, cost = unpack(envelope.parcels, frames[2:])
            if connection is None:
                self._first(routing_id, envelope)
                return
            self._check(connection, envelope)
            connection.received.add(cost)
            self._common.time.observe(envelope.timestamp)
        except StelaeError as error:
            self._departures.refuse_message(routing_id, envelope, error)
            return
        self._common.receive_through(
            connection.sender, partial(self._use, connection, envelope, bodies)
        )

    # -- hello ------------------------------------------------------------------------------------

    def _first(self, routing_id: bytes, envelope: Envelope) -> None:
        """The first message of a connection: a hello, or it is refused."""
        sender, incarnation = NodeId(envelope.sender), IncarnationId(envelope.sender_incarnation)
        if self._connections.is_retired(sender, incarnation):
            raise StaleSender(f"run {incarnation} of node {sender} has been superseded")
        parcels = envelope.parcels
        if not parcels or parcels[0].kind != HELLO:
            raise HelloFirst("this connection has not said hello")
        greeting = read_greeting(envelope, parcels[0], self._common, expected=None)
        if sender == self._common.identity.node_id:
            raise Malformed("a hello in this node's own name")
        self._common.time.observe(envelope.timestamp)
        if len(self._connections) >= self._common.settings.connections_max:
            raise Overloaded("this node has as many connections as it takes")
        self._common.receive_through(
            sender, partial(self._welcome, routing_id, sender, incarnation, greeting)
        )

    def _welcome(
        self, routing_id: bytes, sender: NodeId, incarnation: IncarnationId, greeting: Greeting
    ) -> None:
        if self._connections.get(routing_id) is not None:
            return
        window_bytes = self._common.settings.window_bytes(greeting.lane)
        connection = Inbound(
            routing_id=routing_id,
            sender=sender,
            incarnation=incarnation,
            lane=greeting.lane,
            credit=SendCredit(min(window_bytes, greeting.window_bytes)),
            received=ReceiveCredit(window_bytes),
            outbox=self._common.outbox(),
            heard_us=self._common.now_us(),
        )
        for superseded in self._connections.add(connection):
            self._drop(superseded)
        self._answer_hello(connection)

    def _answer_hello(self, connection: Inbound) -> None:
        fields = hello_fields(connection.lane, self._common.settings)
        self._departures.add(connection, HELLO, fields=fields)

    # -- everything after it ----------------------------------------------------------------------

    def _check(self, connection: Inbound, envelope: Envelope) -> None:
        if (
            envelope.sender != connection.sender
            or envelope.sender_incarnation != connection.incarnation
        ):
            raise StaleSender(f"this connection is not that of this run of {envelope.sender}")
        parcels = envelope.parcels
        if parcels and parcels[0].kind == HELLO:
            read_greeting(envelope, parcels[0], self._common, expected=connection.sender)
        else:
            check_addressee(envelope, self._common.identity)

    def _use(self, connection: Inbound, envelope: Envelope, bodies: list[list[Buffer]]) -> None:
        if self._connections.get(connection.routing_id) is not connection:
            return  # it was dropped while the fault seam held this message back
        now_us = self._common.now_us()
        connection.heard_us = now_us
        if connection.credit.reported(envelope.credit) and connection.outbox:
            self._departures.mark(connection)
        for parcel, body in zip(envelope.parcels, bodies, strict=True):
            try:
                self._use_parcel(connection, parcel, body, now_us)
            except StelaeError as error:
                self._departures.refuse_parcel(connection, parcel, error)
        if connection.received.report_due:
            self._departures.add(connection, CREDIT)

    def _use_parcel(
        self, connection: Inbound, parcel: Parcel, body: list[Buffer], now_us: int
    ) -> None:
        kind = parcel.kind
        if kind == PING:
            self._departures.add(connection, PONG)
        elif kind == CANCEL:
            self._dispatcher.cancel(connection, parcel.request_id)
        elif kind == HELLO:
            self._answer_hello(connection)
        elif kind != CREDIT:
            self._dispatcher.dispatch(connection, parcel, body, now_us)

    def _drop(self, connection: Inbound) -> None:
        """Forget a connection; whoever speaks on it again is told to say hello."""
        self._connections.remove(connection)
        self._departures.forget(connection)
        self._dispatcher.forget(connection)
