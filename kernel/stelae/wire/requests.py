"""Received requests and one-way messages: which handler takes which kind, and the requests not yet answered.

A request is open until it is answered, it is cancelled, its deadline passes, or its connection is lost. Only an open
request can be answered. The number of open requests is limited per connection, and their age by the deadline."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import msgspec

from stelae.spi.errors import CallerError, DeadlineExceeded, Overloaded, PluginError, StelaeError, TooLarge
from stelae.spi.ids import IncarnationId, NodeId
from stelae.spi.services import Buffer
from stelae.wire.context import MessengerContext
from stelae.wire.credit import Credit
from stelae.wire.deadlines import Deadlines
from stelae.wire.envelope import Message, MessageKind
from stelae.wire.packets import Outbox, measure
from stelae.wire.refusals import Fields, HandlerFailed, UnknownKind, error_fields
from stelae.wire.settings import Lane


@dataclass(slots=True, eq=False)
class InboundConnection:
    """A connection that a peer or a client opened, after its hello."""

    #: ZeroMQ's id of the connection.
    routing_id: bytes
    sender: NodeId
    incarnation: IncarnationId
    lane: Lane
    #: When the last packet arrived, by the monotonic clock.
    heard_us: int
    credit: Credit
    outbox: Outbox = field(init=False)
    #: The open requests, by request id.
    requests: dict[int, "Request"] = field(default_factory=dict)


class OneWayMessage(msgspec.Struct, frozen=True):
    """A one-way message. The frames of its body may be views; they stay valid while they are referenced."""

    sender: NodeId
    sender_incarnation: IncarnationId
    kind: str
    body: Sequence[Buffer]
    fields: Fields


class Request(msgspec.Struct, eq=False):
    """One request. It is answered once, with ``reply`` or ``refuse``."""

    sender: NodeId
    sender_incarnation: IncarnationId
    kind: str
    request_id: int
    #: On this node's monotonic clock.
    deadline_us: int
    trace_id: str
    fields: Fields
    body: Sequence[Buffer]
    connection: InboundConnection
    services: "ServedKinds"
    bucket: int = 0
    open: bool = True
    #: Whether the caller waits longer than this node keeps a request open. It gets an error when the request is closed.
    outwaited: bool = False

    def reply(self, frames: Sequence[Buffer] = (), fields: Fields | None = None) -> bool:
        """Send the answer. Return False, and send nothing, if the request is no longer open.

        If the answer is above the limits of ``measure``, the caller gets ``TooLarge`` instead. It is not raised here,
        because a handler that answers later has no caller who could handle it."""
        return self.open and self.services.answer(self, MessageKind.REPLY, fields, frames)

    def refuse(self, error: StelaeError) -> bool:
        """Answer with an error. The caller gets an error of the same class. Returns what ``reply`` returns."""
        return self.open and self.services.answer(self, MessageKind.ERROR, error_fields(error))

    def on_due(self, now_us: int) -> None:
        self.services.expire(self)


RequestHandler: TypeAlias = Callable[[Request], None]
MessageHandler: TypeAlias = Callable[[OneWayMessage], None]


class ServedKind(msgspec.Struct, frozen=True, kw_only=True):
    """One message kind that this process serves. Exactly one of the handlers is set."""

    #: Messages of this kind on another lane are refused.
    lane: Lane
    on_request: RequestHandler | None = None
    on_message: MessageHandler | None = None


class ServedKinds:
    """The message kinds that a process serves. It passes received messages to their handlers."""

    def __init__(self, context: MessengerContext, deadlines: Deadlines) -> None:
        self._context = context
        self._deadlines = deadlines
        self._services: dict[str, ServedKind] = {}

    def add(self, kind: str, service: ServedKind) -> None:
        """Register a kind. Raises ``PluginError`` if it is already registered, too long, or reserved."""
        if kind in self._services:
            raise PluginError(f"message kind {kind!r} is registered twice")
        if kind == MessageKind.HELLO or kind.startswith(MessageKind.RESERVED_PREFIX) or not 0 < len(kind) <= 64:
            expected = (
                f"1 to 64 characters, not {MessageKind.HELLO!r}, not beginning with {MessageKind.RESERVED_PREFIX!r}"
            )
            raise PluginError(f"message kind {kind!r} cannot be registered: {expected}")
        self._services[kind] = service

    def dispatch(self, connection: InboundConnection, message: Message, body: list[Buffer], now_us: int) -> None:
        """Pass a message to its handler. Raises the ``StelaeError`` with which the message must be refused."""
        service = self._find(message, connection.lane)
        if service.on_message is not None:
            delivered = OneWayMessage(
                connection.sender, connection.incarnation, message.kind, body, message.fields or {}
            )
            if error := self._guard(message.kind, partial(service.on_message, delivered)):
                raise error
        elif message.request_id in connection.requests:
            self._context.metrics.count("wire_requests_repeated")
        elif service.on_request is not None:
            request = self._open(connection, message, body, now_us)
            if error := self._guard(message.kind, partial(service.on_request, request)):
                request.refuse(error)

    def answer(self, request: Request, kind: str, fields: Fields | None, frames: Sequence[Buffer] = ()) -> bool:
        """Queue the answer to an open request, and close the request. Always returns True."""
        try:
            lengths = measure(frames, self._context.settings)
        except TooLarge as error:
            self._context.refused(error)
            kind, fields, frames, lengths = MessageKind.ERROR, error_fields(error), (), []
        self._close(request)
        request.connection.outbox.add(kind, request.request_id, 0, "", fields, frames, lengths)
        return True

    def _find(self, message: Message, lane: Lane) -> ServedKind:
        service = self._services.get(message.kind)
        if service is None:
            raise UnknownKind(f"this node does not serve messages of kind {message.kind!r}")
        if service.lane is not lane:
            raise CallerError(f"{message.kind!r} must be sent on lane {service.lane.name}, not {lane.name}")
        if service.on_message is not None:
            if message.request_id:
                raise CallerError(f"{message.kind!r} is one-way and cannot be answered")
        elif not message.request_id:
            raise CallerError(f"{message.kind!r} is a request and needs a request id")
        elif not message.deadline_ms:
            raise CallerError("a request's deadline must be at least 1 ms")
        return service

    def expire(self, request: Request) -> None:
        """Close a request whose deadline has passed. A caller that waits longer gets ``DeadlineExceeded``."""
        if request.outwaited:
            most_ms = self._context.settings.deadline_ms_max
            fact = f"no answer to {request.kind} within {most_ms} ms"
            request.refuse(DeadlineExceeded(f"{fact}, the longest time for which this node keeps a request open"))
            self._context.metrics.count("wire_requests_abandoned")
        else:
            self.abandon(request)

    def abandon(self, request: Request | None) -> None:
        """Close a request without an answer: it was cancelled, its connection was lost, or its deadline passed."""
        if request is None:
            return
        self._close(request)
        self._context.metrics.count("wire_requests_abandoned")

    def _open(self, connection: InboundConnection, message: Message, body: list[Buffer], now_us: int) -> Request:
        if len(connection.requests) >= self._context.settings.requests_open_max:
            raise Overloaded("too many unanswered requests on this connection")
        most_ms = self._context.settings.deadline_ms_max
        due_us = now_us + min(message.deadline_ms, most_ms) * 1000
        sender, run = connection.sender, connection.incarnation
        key, fields = message.request_id, message.fields or {}
        request = Request(sender, run, message.kind, key, due_us, message.trace_id, fields, body, connection, self)
        request.outwaited = message.deadline_ms > most_ms
        connection.requests[key] = request
        self._deadlines.set(request, due_us)
        return request

    def _close(self, request: Request) -> None:
        request.open = False
        request.connection.requests.pop(request.request_id, None)
        self._deadlines.drop(request)

    def _guard(self, kind: str, handle: Callable[[], None]) -> StelaeError | None:
        """Run a handler. Return what it raised, as a ``StelaeError``; an unexpected error never ends the node."""
        try:
            handle()
        except StelaeError as error:
            return error
        except Exception:
            self._context.unexpected(f"the handler of {kind}")
            return HandlerFailed(f"unexpected error in the handler of {kind!r}; the log of the node has its traceback")
        return None
