"""Requests and one-way messages: who takes which kind, and what becomes of each that arrived.

A request is open, and can be answered, until it is answered, cancelled, past its deadline, or its
connection is gone. So what is open is bounded by the limit per connection and by the deadline."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import msgspec

from stelae.spi.errors import CallerError, Overloaded, PluginError, StelaeError, TooLarge
from stelae.spi.ids import IncarnationId, NodeId
from stelae.spi.services import Buffer
from stelae.wire.common import Common
from stelae.wire.deadlines import Deadlines
from stelae.wire.envelope import Kind, Parcel
from stelae.wire.parcels import Credit, Outbox, measure
from stelae.wire.refusals import Fields, HandlerFailed, UnknownKind, error_fields
from stelae.wire.settings import Lane


@dataclass(slots=True, eq=False)
class Inbound:
    """A connection that somebody else opened and that has said hello."""

    routing_id: bytes
    sender: NodeId
    incarnation: IncarnationId
    lane: Lane
    heard_us: int
    credit: Credit
    outbox: Outbox = field(init=False)
    requests: dict[int, "Request"] = field(default_factory=dict)


class Message(msgspec.Struct, frozen=True):
    """A one-way message. Frames may be views; they stay valid while referenced."""

    sender: NodeId
    sender_incarnation: IncarnationId
    kind: str
    body: Sequence[Buffer]
    fields: Fields


class Request(msgspec.Struct, eq=False):
    """One request, to be answered once. ``deadline_us`` is on this node's monotonic clock."""

    sender: NodeId
    sender_incarnation: IncarnationId
    kind: str
    request_id: int
    deadline_us: int
    trace_id: str
    fields: Fields
    body: Sequence[Buffer]
    connection: Inbound
    services: "Services"
    bucket: int = 0
    open: bool = True
    cancelled: Callable[[], None] | None = None

    def reply(self, frames: Sequence[Buffer] = (), fields: Fields | None = None) -> bool:
        """Answer, unless answered, cancelled or too late: then False. An answer that no peer takes (see ``measure``) is
        refused as ``TooLarge`` instead: whoever answers later than the handler has no caller that could."""
        return self.open and self.services.answer(self, Kind.REPLY, fields, frames)

    def refuse(self, error: StelaeError) -> bool:
        """Answer with an error, which reaches the caller as one of its class; as ``reply``."""
        return self.open and self.services.answer(self, Kind.ERROR, error_fields(error))

    def on_cancel(self, call: Callable[[], None]) -> None:
        """Run ``call`` if the caller gives up, vanishes, or the deadline passes unanswered."""
        self.cancelled = call

    def on_due(self, now_us: int) -> None:
        self.services.abandon(self)


RequestHandler: TypeAlias = Callable[[Request], None]
MessageHandler: TypeAlias = Callable[[Message], None]


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One kind: exactly one of the handlers is set. ``lane`` is the one it must arrive on."""

    lane: Lane
    on_request: RequestHandler | None = None
    on_message: MessageHandler | None = None


class Services:
    """The kinds that a process serves, and the open requests of all its connections."""

    def __init__(self, common: Common, deadlines: Deadlines) -> None:
        self._common = common
        self._deadlines = deadlines
        self._services: dict[str, Service] = {}

    def add(self, kind: str, service: Service) -> None:
        """Register a kind; ``PluginError`` if it is taken, too long, or the messenger's own."""
        if kind in self._services:
            raise PluginError(f"message kind {kind!r} is registered twice")
        if kind == Kind.HELLO or kind.startswith(Kind.RESERVED_PREFIX) or not 0 < len(kind) <= 64:
            expected = f"1 to 64 characters, not {Kind.HELLO!r}, not beginning with {Kind.RESERVED_PREFIX!r}"
            raise PluginError(f"message kind {kind!r} cannot be registered: {expected}")
        self._services[kind] = service

    def dispatch(self, connection: Inbound, parcel: Parcel, body: list[Buffer], now_us: int) -> None:
        """Hand a parcel to its service; raises ``StelaeError`` with which it is to be refused."""
        service = self._find(parcel, connection.lane)
        if service.on_message is not None:
            message = Message(connection.sender, connection.incarnation, parcel.kind, body, parcel.fields or {})
            if error := self._guard(parcel.kind, partial(service.on_message, message)):
                raise error
        elif parcel.request_id in connection.requests:
            self._common.metrics.count("wire_requests_repeated")
        elif service.on_request is not None:
            request = self._open(connection, parcel, body, now_us)
            if error := self._guard(parcel.kind, partial(service.on_request, request)):
                request.refuse(error)

    def answer(self, request: Request, kind: str, fields: Fields | None, frames: Sequence[Buffer] = ()) -> bool:
        """Queue the answer of an open request, and close it."""
        try:
            lengths = measure(frames, self._common.settings)
        except TooLarge as error:
            self._common.refused(error)
            kind, fields, frames, lengths = Kind.ERROR, error_fields(error), (), []
        self._close(request)
        request.connection.outbox.add(kind, request.request_id, 0, "", fields, frames, lengths)
        return True

    def _find(self, parcel: Parcel, lane: Lane) -> Service:
        service = self._services.get(parcel.kind)
        deadline_ms_max = self._common.settings.deadline_ms_max
        if service is None:
            raise UnknownKind(f"no service for messages of kind {parcel.kind!r} on this node")
        if service.lane is not lane:
            raise CallerError(f"{parcel.kind!r} travels on lane {service.lane.name}")
        if service.on_message is not None:
            if parcel.request_id:
                raise CallerError(f"{parcel.kind!r} is one-way and cannot be answered")
        elif not parcel.request_id:
            raise CallerError(f"{parcel.kind!r} is a request and needs a request id")
        elif not 0 < parcel.deadline_ms <= deadline_ms_max:
            raise CallerError(f"a request's deadline is from 1 to {deadline_ms_max} ms")
        return service

    def abandon(self, request: Request | None) -> None:
        """Nobody waits for its answer: the caller gave up, is gone, or had no time left."""
        if request is None:
            return
        self._close(request)
        self._common.metrics.count("wire_requests_abandoned")
        if request.cancelled is not None:
            self._guard(request.kind, request.cancelled)

    def _open(self, connection: Inbound, parcel: Parcel, body: list[Buffer], now_us: int) -> Request:
        if len(connection.requests) >= self._common.settings.requests_open_max:
            raise Overloaded("too many unanswered requests on this connection")
        sender, run, due_us = connection.sender, connection.incarnation, now_us + parcel.deadline_ms * 1000
        key, fields = parcel.request_id, parcel.fields or {}
        request = Request(sender, run, parcel.kind, key, due_us, parcel.trace_id, fields, body, connection, self)
        connection.requests[key] = request
        self._deadlines.set(request, due_us)
        return request

    def _close(self, request: Request) -> None:
        request.open = False
        request.connection.requests.pop(request.request_id, None)
        self._deadlines.drop(request)

    def _guard(self, kind: str, handle: Callable[[], None]) -> StelaeError | None:
        """Run a handler; whatever it raises ends the request, never the node."""
        try:
            handle()
        except StelaeError as error:
            return error
        except Exception:
            self._common.unexpected(f"the handler of {kind}")
            return HandlerFailed(f"the service of {kind!r} met an unexpected error")
        return None
