"""A link: one lane to one peer, kept open for as long as the peer is wanted.

    IDLE -> RESOLVING -> CONNECTING -> GREETING -> UP
      ^---------- any failure, loss or silence -------'

A link owns at most one connection (``DealerPort``), each with a new socket, hello and credit: nothing meant for a dead
process reaches its successor. While not UP nothing is queued: messages are dropped, calls fail or are repeated."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial

from stelae.spi.errors import Overloaded, StelaeError, Unavailable
from stelae.spi.ids import ClusterId, IncarnationId, NodeId
from stelae.spi.services import Buffer
from stelae.wire.addresses import Resolve
from stelae.wire.calls import Call, CallTable, Response
from stelae.wire.common import Common
from stelae.wire.edge import DealerPort, Edge, Party, Port
from stelae.wire.envelope import Envelope, Kind, Parcel, check_addressee, check_hello, hello_fields
from stelae.wire.faults import Direction
from stelae.wire.parcels import Credit, Outbox, read_message, unpack
from stelae.wire.refusals import Fields, Malformed, Misdirected, StaleSender, UnknownKind, error_of
from stelae.wire.settings import PARCEL_COST, Lane

_log = logging.getLogger(__name__)


class LinkState(StrEnum):
    """Where a link is on its way to a connection."""

    IDLE = "IDLE"
    RESOLVING = "RESOLVING"
    CONNECTING = "CONNECTING"
    GREETING = "GREETING"
    UP = "UP"
    CLOSED = "CLOSED"


class Link(Party):
    """See the module. ``changed`` is called when a link came UP (``None``), or was lost (why)."""

    def __init__(
        self,
        common: Common,
        edge: Edge,
        resolve: Resolve,
        changed: Callable[["Link", StelaeError | None], None],
        lane: Lane,
        address: str,
        peer: NodeId | None,
    ) -> None:
        super().__init__(common, edge)
        self._resolve, self._changed = resolve, changed
        self.lane, self.address, self.peer = lane, address, peer
        self.peer_incarnation: IncarnationId | None = None
        self.state = LinkState.IDLE
        self.last_failure: StelaeError | None = None
        self._opened = self._failures = self._heard_us = self._asked_us = 0
        self._credit = Credit(common.settings.window_bytes(lane))
        self._outbox = Outbox(common.settings, partial(edge.dirty, self))
        self.calls = CallTable(self._transmit, self._cancel, edge.deadlines, common.rng)

    @property
    def up(self) -> bool:
        return self.state is LinkState.UP

    def open(self) -> None:
        self._opened += 1
        self.state = LinkState.RESOLVING
        self._set_due(self._common.settings.connect_timeout_ms)
        self._resolve(self.address, partial(self._resolved, self._opened))

    def restart(self, reason: str) -> None:
        self._lose(Unavailable(reason))

    def move(self, address: str) -> None:
        """The peer has another address now: leave the old one."""
        if address != self.address:
            self.address, self._failures = address, 0
            self.restart("the peer's address changed")

    def send(self, kind: str, frames: Sequence[Buffer], lengths: list[int], fields: Fields | None) -> bool:
        """Queue a one-way message; say whether it will be sent."""
        if not self.up or not self._credit.take(PARCEL_COST + sum(lengths)):
            return False
        self._outbox.add(kind, 0, 0, "", fields, frames, lengths)
        return True

    def close(self, error: StelaeError) -> None:
        """Give the link up; calls fail with ``error``."""
        self.state = LinkState.CLOSED
        self._drop_connection()
        self.calls.fail_all(error)

    def flush(self) -> None:
        while (batch := self._outbox.take()) is not None:
            peer, run = self.peer or "", self.peer_incarnation or ""
            self._common.write(batch, peer, run, self._credit, partial(self._put, self.port))

    def on_ready(self) -> None:
        super().on_ready()
        if self.port is None:
            return
        writable = self.port.writable()
        if self.state is LinkState.CONNECTING and writable:
            self.state = LinkState.GREETING
            self._credit = Credit(self._common.settings.window_bytes(self.lane))
            self._outbox.add(Kind.HELLO, fields=hello_fields(self.lane, self._common.settings))
        elif self.state in (LinkState.GREETING, LinkState.UP) and not writable:
            self.restart("the connection was closed, or the peer does not read")

    def on_due(self, now_us: int) -> None:
        settings, silence_us = self._common.settings, now_us - self._heard_us
        if self.state is LinkState.IDLE:
            self.open()
        elif self.state is not LinkState.UP:
            self.restart("no hello in time")
        elif self._heard_us < self._asked_us < now_us - (settings.silence_ms_max - settings.ping_ms) * 1000:
            self.restart("the peer is silent")
        else:
            if silence_us >= settings.ping_ms * 1000:  # Time in which this loop stood still is not the peer's silence.
                self._asked_us = now_us if self._asked_us <= self._heard_us else self._asked_us
                self._outbox.add(Kind.PING)
            self._set_due(settings.ping_ms)

    def arrived(self, frames: list[Buffer]) -> None:
        connection = self.port
        try:
            envelope = read_message(frames, self._common.settings)
            if self.state is LinkState.GREETING:
                self._greeted(envelope)
                return
            check_addressee(envelope, self._common.identity)
            if (envelope.sender, envelope.sender_incarnation) != (self.peer, self.peer_incarnation):
                raise StaleSender(f"an answer of {envelope.sender} on the link to {self.peer}")
            bodies, cost = unpack(envelope.parcels, frames[1:])
            if self._credit.consume(cost):
                self._outbox.add(Kind.CREDIT)
            self._common.time.observe(envelope.timestamp)
        except StelaeError as error:
            self._common.refused(error)
            if self.state is LinkState.GREETING:
                self._lose(error)
            return
        self._common.through(envelope.sender, Direction.INBOUND, partial(self._use, connection, envelope, bodies))

    def _resolved(self, opened: int, resolved: tuple[str, int] | None) -> None:
        if opened != self._opened or self.state is not LinkState.RESOLVING:
            return
        if resolved is None:
            self.restart(f"the name in {self.address} cannot be resolved")
            return
        self.state = LinkState.CONNECTING
        self.port = connection = self._edge.open(self, DealerPort, self.lane)
        connection.connect(*resolved)
        self.on_ready()

    def _greeted(self, envelope: Envelope) -> None:
        """The first answer on a connection: a hello, or a refusal, which is raised."""
        if not envelope.parcels:
            raise Malformed("an empty answer to hello")
        if envelope.parcels[0].kind == Kind.REFUSED:
            raise error_of(envelope.parcels[0].fields)
        _, window_bytes = check_hello(envelope, self._common.identity, self.peer)
        self._common.time.observe(envelope.timestamp)
        welcomed = partial(self._welcomed, self.port, envelope, window_bytes)
        self._common.through(envelope.sender, Direction.INBOUND, welcomed)

    def _welcomed(self, connection: Port | None, envelope: Envelope, window_bytes: int) -> None:
        if connection is not self.port or self.state is not LinkState.GREETING:
            return
        self.peer = NodeId(envelope.sender)
        self.peer_incarnation = IncarnationId(envelope.sender_incarnation)
        if not self._common.identity.cluster_id:
            self._common.identity = replace(self._common.identity, cluster_id=ClusterId(envelope.cluster_id))
        self._credit.window_bytes = min(self._credit.window_bytes, window_bytes)
        self.state, self._failures = LinkState.UP, 0
        self._heard_us = now_us = self._common.now_us()
        self._set_due(self._common.settings.ping_ms)
        _log.debug("link up peer=%s lane=%s", self.peer, self.lane.name)
        self._changed(self, None)
        self.calls.link_up(now_us)

    def _lose(self, error: StelaeError) -> None:
        """Drop the connection and try again after a jittered pause."""
        if self.state in (LinkState.CLOSED, LinkState.IDLE):
            return
        settings, metrics = self._common.settings, self._common.metrics
        metrics.count("wire_links_lost" if self.up else "wire_links_failed")
        self.state, self.last_failure = LinkState.IDLE, error
        self._drop_connection()
        ceiling_ms = min(settings.reconnect_ms_max, settings.reconnect_ms_min << self._failures)
        self._failures = min(self._failures + 1, 16)
        self._set_due(ceiling_ms * (0.5 + self._common.rng.random() / 2))
        _log.debug("link lost peer=%s lane=%s reason=%s", self.peer, self.lane.name, error)
        self._changed(self, error)
        self.peer_incarnation = None
        lost = Unavailable(f"the connection to {self.address} was lost: {error}")
        self.calls.link_lost(lost, self._common.now_us())

    def _drop_connection(self) -> None:
        self._opened += 1
        self._outbox.clear()
        if self.port is not None:
            self._edge.close_port(self.port)
            self.port = None

    def _set_due(self, delay_ms: float) -> None:
        self._edge.deadlines.set(self, self._common.now_us() + int(delay_ms * 1000))

    def _transmit(self, call: Call, now_us: int) -> StelaeError | None:
        if not self.up:
            return Unavailable(f"not connected to {self.peer or self.address}: {self.last_failure or 'not yet'}")
        if not self._credit.take(PARCEL_COST + sum(call.lengths)):
            return Overloaded(f"the link to {self.peer} has used up its byte credit")
        left_ms = max(1, (call.deadline_us - now_us) // 1000)
        self._outbox.add(call.kind, call.request_id, left_ms, call.trace_id, call.fields, call.frames, call.lengths)
        return None

    def _cancel(self, request_id: int) -> None:
        if self.up:
            self._outbox.add(Kind.CANCEL, request_id)

    def _put(self, connection: Port | None, frames: Sequence[Buffer]) -> None:
        if connection is self.port and connection is not None and not connection.send(frames):
            self.restart("the connection was closed, or the peer does not read")

    def _use(self, connection: Port | None, envelope: Envelope, bodies: list[list[Buffer]]) -> None:
        if connection is not self.port:
            return  # it was lost while the fault seam held this message back
        self._heard_us = self._common.now_us()
        self._credit.freed(envelope.credit)
        for parcel, body in zip(envelope.parcels, bodies, strict=True):
            self._use_parcel(NodeId(envelope.sender), parcel, body)

    def _use_parcel(self, sender: NodeId, parcel: Parcel, body: list[Buffer]) -> None:
        kind, fields, awaited = parcel.kind, parcel.fields or {}, True
        if kind == Kind.REPLY:
            awaited = self.calls.answer(parcel.request_id, Response(sender=sender, body=body, fields=fields))
        elif kind == Kind.ERROR:
            awaited = self.calls.refuse(parcel.request_id, error_of(fields), self._heard_us)
        elif kind == Kind.REFUSED:
            error = error_of(fields)
            self._common.metrics.count(f"wire_refused_by_peer_{error.code.lower()}")
            if isinstance(error, Misdirected):
                self._lose(error)
        elif kind not in (Kind.PONG, Kind.CREDIT, Kind.HELLO):
            self._common.refused(UnknownKind(f"{kind!r} is no answer"))
        if not awaited:
            self._common.metrics.count("wire_answers_unawaited")
