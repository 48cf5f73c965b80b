"""A link: one lane to one peer, kept open for as long as the peer is wanted.

    IDLE -> RESOLVING -> CONNECTING -> GREETING -> UP
      ^---------- any failure, loss or silence -------'

A link owns at most one connection (``DealerPort``) at a time. Each gets a new socket, a new hello
and new credit, so nothing meant for a dead process can reach its successor. While the link is not
UP nothing is queued: one-way messages are dropped, calls fail or wait for their next attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import TypeAlias

from stelae.spi.errors import Overloaded, StelaeError, Unavailable
from stelae.spi.ids import IncarnationId, NodeId
from stelae.spi.services import Buffer
from stelae.wire.addresses import Resolve, Resolved
from stelae.wire.calls import Call, CallTable, Response
from stelae.wire.common import Common, read_message
from stelae.wire.credit import ReceiveCredit, SendCredit
from stelae.wire.edge import Edge
from stelae.wire.envelope import Envelope, Parcel, check_addressee
from stelae.wire.hello import Greeting, hello_fields, read_greeting
from stelae.wire.parcels import (
    CANCEL,
    CREDIT,
    ERROR,
    HELLO,
    PING,
    PONG,
    REFUSED,
    REPLY,
    Batch,
    parcel_cost,
    unpack,
)
from stelae.wire.refusals import (
    BREAKS_LINK,
    Fields,
    Malformed,
    StaleSender,
    UnknownKind,
    error_of,
)
from stelae.wire.settings import Lane
from stelae.wire.sockets import DealerPort, SendResult

_log = logging.getLogger(__name__)


class LinkState(StrEnum):
    """Where a link is on its way to a connection."""

    IDLE = "IDLE"
    RESOLVING = "RESOLVING"
    CONNECTING = "CONNECTING"
    GREETING = "GREETING"
    UP = "UP"
    CLOSED = "CLOSED"


Changed: TypeAlias = Callable[["Link", StelaeError | None], None]
"""Called when a link came UP (``None``), and when it was lost or an attempt failed (why)."""


class Link:
    """See the module. All methods run on the loop; none blocks or raises for what a peer does."""

    def __init__(
        self,
        common: Common,
        edge: Edge,
        resolve: Resolve,
        changed: Changed,
        *,
        lane: Lane,
        address: str,
        peer: NodeId | None,
    ) -> None:
        self._common = common
        self._edge = edge
        self._changed = changed
        self._resolve = resolve
        self.lane = lane
        self.address = address
        self.peer = peer
        self.peer_incarnation: IncarnationId | None = None
        self.state = LinkState.IDLE
        self.calls = CallTable(self._transmit_call, self._cancel_call, edge.wake_at, common.rng)
        self.last_failure: StelaeError | None = None
        self._connection: DealerPort | None = None
        self._opened = 0
        self._failures = 0
        self._due_us = 0
        self._heard_us = 0
        self._outbox = common.outbox()
        self._credit = SendCredit(common.settings.window_bytes(lane))
        self._received = ReceiveCredit(common.settings.window_bytes(lane))

    @property
    def up(self) -> bool:
        """Whether messages can be sent."""
        return self.state is LinkState.UP

    # -- what the messenger asks ------------------------------------------------------------------

    def open(self) -> None:
        """Begin, or begin again, to connect."""
        self._opened += 1
        self.state = LinkState.RESOLVING
        self._set_due(self._common.now_us() + self._common.settings.connect_timeout_ms * 1000)
        self._resolve(self.address, partial(self._resolved, self._opened))

    def restart(self, reason: str) -> None:
        """Leave the present connection, if any, and open another."""
        self._lose(Unavailable(reason))

    def move(self, address: str) -> None:
        """The peer has another address now: leave the old one."""
        if address != self.address:
            self.address = address
            self._failures = 0
            self.restart("the peer's address changed")

    def send(
        self, kind: str, frames: Sequence[Buffer], lengths: list[int], fields: Fields | None
    ) -> bool:
        """Queue a one-way message; say whether it will be sent."""
        if self.state is not LinkState.UP or not self._credit.take(parcel_cost(lengths)):
            return False
        self._add(kind, 0, 0, "", fields, frames, lengths)
        return True

    def start(self, call: Call) -> None:
        """Begin a call."""
        self.calls.start(call, self._common.now_us())

    def flush(self) -> None:
        """Write what was queued."""
        while self.state in (LinkState.UP, LinkState.GREETING):
            batch = self._outbox.take()
            if batch is None:
                return
            self._write(batch)

    def drain(self) -> bool:
        """Take what arrived; say whether nothing is left."""
        connection = self._connection
        if connection is None:
            return True
        drained = connection.drain(self._arrived, self._common.settings.drain_messages_max)
        if self._received.report_due and self.state is LinkState.UP:
            self._add(CREDIT)
        return drained

    def on_ready(self) -> None:
        """The connection may have become writable or readable, or may be lost."""
        if not self.drain():
            self._edge.dirty(self)
        if self._connection is None:
            return
        writable = self._connection.writable()
        if self.state is LinkState.CONNECTING and writable:
            self._greet()
        elif self.state in (LinkState.GREETING, LinkState.UP) and not writable:
            self.restart("the connection was closed, or the peer does not read")

    def on_time(self, now_us: int) -> None:
        """Judge time-outs. The sockets have been drained just before."""
        self.calls.expire(now_us)
        if now_us >= self._due_us:
            self._overdue(now_us)

    def next_due_us(self) -> int:
        """When ``on_time`` is wanted."""
        calls_us = self.calls.next_due_us()
        return self._due_us if calls_us is None else min(self._due_us, calls_us)

    def readable(self) -> bool:
        """Whether messages wait: to be asked after sending, for the descriptor will not tell."""
        return self._connection is not None and self._connection.readable()

    def close(self, error: StelaeError) -> None:
        """Give the link up; calls fail with ``error``."""
        self.state = LinkState.CLOSED
        self._drop_connection()
        self.calls.fail_all(error)

    # -- connecting -------------------------------------------------------------------------------

    def _resolved(self, opened: int, resolved: Resolved | None) -> None:
        if opened != self._opened or self.state is not LinkState.RESOLVING:
            return
        if resolved is None:
            self.restart(f"the name in {self.address} cannot be resolved")
            return
        self._connection = self._edge.open_dealer(self, self.lane)
        self.state = LinkState.CONNECTING
        self._connection.connect(*resolved)
        self.on_ready()

    def _greet(self) -> None:
        self.state = LinkState.GREETING
        self._credit = SendCredit(self._common.settings.window_bytes(self.lane))
        self._received = ReceiveCredit(self._common.settings.window_bytes(self.lane))
        self._add(HELLO, fields=hello_fields(self.lane, self._common.settings))

    def _welcomed(
        self, connection: DealerPort | None, envelope: Envelope, greeting: Greeting
    ) -> None:
        if connection is not self._connection or self.state is not LinkState.GREETING:
            return
        self.peer = NodeId(envelope.sender)
        self.peer_incarnation = IncarnationId(envelope.sender_incarnation)
        self._common.learn_cluster(envelope.cluster_id)
        self._credit.window_bytes = min(self._credit.window_bytes, greeting.window_bytes)
        self.state = LinkState.UP
        self._failures = 0
        now_us = self._common.now_us()
        self._heard_us = now_us
        self._set_due(now_us + self._common.settings.ping_ms * 1000)
        _log.debug("link up peer=%s lane=%s", self.peer, self.lane.name)
        self._changed(self, None)
        self.calls.link_up(now_us)

    def _lose(self, error: StelaeError) -> None:
        """Drop the connection and try again after a jittered pause."""
        if self.state in (LinkState.CLOSED, LinkState.IDLE):
            return
        was_up = self.state is LinkState.UP
        self.state = LinkState.IDLE
        self.last_failure = error
        self._drop_connection()
        settings, now_us = self._common.settings, self._common.now_us()
        ceiling_ms = min(settings.reconnect_ms_max, settings.reconnect_ms_min << self._failures)
        self._failures = min(self._failures + 1, 16)
        pause_ms = ceiling_ms * (0.5 + self._common.rng.random() / 2)
        self._set_due(now_us + int(pause_ms * 1000))
        _log.debug("link lost peer=%s lane=%s reason=%s", self.peer, self.lane.name, error)
        self._common.metrics.count("wire_links_lost" if was_up else "wire_links_failed")
        self._changed(self, error)
        self.peer_incarnation = None
        lost = Unavailable(f"the connection to {self.address} was lost: {error}")
        self.calls.link_lost(lost, now_us)

    def _drop_connection(self) -> None:
        self._opened += 1
        self._outbox.clear()
        if self._connection is not None:
            self._edge.close_port(self._connection)
            self._connection = None

    def _overdue(self, now_us: int) -> None:
        settings = self._common.settings
        match self.state:
            case LinkState.IDLE:
                self.open()
            case LinkState.RESOLVING | LinkState.CONNECTING | LinkState.GREETING:
                self.restart(f"no hello from {self.address} in time")
            case LinkState.UP:
                if now_us - self._heard_us > settings.silence_ms_max * 1000:
                    self.restart("the peer is silent")
                    return
                if now_us - self._heard_us >= settings.ping_ms * 1000:
                    self._add(PING)
                self._set_due(now_us + settings.ping_ms * 1000)
            case LinkState.CLOSED:
                return

    def _set_due(self, due_us: int) -> None:
        self._due_us = due_us
        self._edge.wake_at(due_us)

    # -- sending ----------------------------------------------------------------------------------

    def _transmit_call(self, call: Call, now_us: int) -> StelaeError | None:
        if self.state is not LinkState.UP:
            return Unavailable(f"not connected to {self.peer or self.address}")
        if not self._credit.take(parcel_cost(call.lengths)):
            return Overloaded(f"the link to {self.peer} has used up its byte credit")
        left_ms = max(1, (call.deadline_us - now_us) // 1000)
        self._add(
            call.kind,
            call.request_id,
            left_ms,
            call.trace_id,
            call.fields,
            call.frames,
            call.lengths,
        )
        return None

    def _cancel_call(self, request_id: int) -> None:
        if self.state is LinkState.UP:
            self._add(CANCEL, request_id)

    def _add(
        self,
        kind: str,
        request_id: int = 0,
        deadline_ms: int = 0,
        trace_id: str = "",
        fields: Fields | None = None,
        frames: Sequence[Buffer] = (),
        lengths: list[int] | None = None,
    ) -> None:
        self._outbox.add(kind, request_id, deadline_ms, trace_id, fields, frames, lengths or [])
        self._edge.dirty(self)

    def _write(self, batch: Batch) -> None:
        frames = self._common.message(
            batch,
            recipient=self.peer or "",
            recipient_incarnation=self.peer_incarnation or "",
            credit=self._received.report(),
        )
        connection = self._connection
        assert connection is not None
        self._common.send_through(
            self.peer, batch.cost, self._credit, partial(self._put, connection, frames)
        )

    def _put(self, connection: DealerPort, frames: Sequence[Buffer]) -> None:
        if connection is not self._connection:
            return
        if connection.send(frames) is not SendResult.SENT:
            self.restart("the connection was closed, or the peer does not read")

    # -- receiving --------------------------------------------------------------------------------

    def _arrived(self, frames: list[Buffer]) -> None:
        """Check one message and use it. The peer that answers is checked like one that asks."""
        connection = self._connection
        if connection is None:
            return
        try:
            envelope = read_message(frames, self._common.settings)
            if self.state is LinkState.GREETING:
                self._greeted(envelope)
                return
            check_addressee(envelope, self._common.identity)
            if (envelope.sender, envelope.sender_incarnation) != (self.peer, self.peer_incarnation):
                raise StaleSender(f"an answer of {envelope.sender} on the link to {self.peer}")
            bodies, cost = unpack(envelope.parcels, frames[1:])
            self._received.add(cost)
            self._common.time.observe(envelope.timestamp)
        except StelaeError as error:
            self._common.refused(error)
            if self.state is LinkState.GREETING:
                self._lose(error)
            return
        self._common.receive_through(
            NodeId(envelope.sender), partial(self._use, connection, envelope, bodies)
        )

    def _greeted(self, envelope: Envelope) -> None:
        """The first answer on a connection: a hello, or a refusal, which is raised."""
        if not envelope.parcels:
            raise Malformed("an empty answer to hello")
        parcel = envelope.parcels[0]
        if parcel.kind == REFUSED:
            raise error_of(parcel.fields)
        greeting = read_greeting(envelope, parcel, self._common, expected=self.peer)
        self._common.time.observe(envelope.timestamp)
        sender = NodeId(envelope.sender)
        here = self._connection
        self._common.receive_through(sender, lambda: self._welcomed(here, envelope, greeting))

    def _use(self, connection: DealerPort, envelope: Envelope, bodies: list[list[Buffer]]) -> None:
        if connection is not self._connection:
            return  # it was lost while the fault seam held this message back
        now_us = self._heard_us = self._common.now_us()
        self._credit.reported(envelope.credit)
        for parcel, body in zip(envelope.parcels, bodies, strict=True):
            self._use_parcel(envelope, parcel, body, now_us)

    def _use_parcel(
        self, envelope: Envelope, parcel: Parcel, body: list[Buffer], now_us: int
    ) -> None:
        kind, fields = parcel.kind, parcel.fields or {}
        awaited = True
        if kind == REPLY:
            response = Response(sender=NodeId(envelope.sender), body=body, fields=fields)
            awaited = self.calls.answer(parcel.request_id, response)
        elif kind == ERROR:
            awaited = self.calls.refuse(parcel.request_id, error_of(fields), now_us)
        elif kind == REFUSED:
            error = error_of(fields)
            self._common.metrics.count(f"wire_refused_by_peer_{error.code.lower()}")
            if isinstance(error, BREAKS_LINK):
                self._lose(error)
        elif kind not in (PONG, CREDIT, HELLO):
            self._common.refused(UnknownKind(f"{kind!r} is no answer"))
        if not awaited:
            self._common.metrics.count("wire_answers_unawaited")
