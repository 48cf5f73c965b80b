"""From a parcel to its service and back: requests opened, answered, cancelled, abandoned.

A request is open from its arrival until it is answered, cancelled, past its deadline, or its
connection is gone; only while it is open can it be answered. So what is open is bounded by the
limit per connection and by the longest deadline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from stelae.spi.errors import Overloaded, StelaeError
from stelae.spi.services import Buffer
from stelae.wire.common import Common, measure
from stelae.wire.connections import Inbound
from stelae.wire.deadlines import Deadlines
from stelae.wire.departures import Departures
from stelae.wire.envelope import Parcel
from stelae.wire.parcels import ERROR, REPLY
from stelae.wire.refusals import Fields, HandlerFailed
from stelae.wire.requests import Message, Request
from stelae.wire.services import Services

_log = logging.getLogger(__name__)


class Dispatcher:
    """Requests and one-way messages of all connections."""

    def __init__(
        self,
        common: Common,
        services: Services,
        departures: Departures,
        wake_at: Callable[[int], None],
    ) -> None:
        self._common = common
        self._services = services
        self._departures = departures
        self._wake_at = wake_at
        self._deadlines: Deadlines[Request] = Deadlines()

    def dispatch(
        self, connection: Inbound, parcel: Parcel, body: list[Buffer], now_us: int
    ) -> None:
        """Hand a parcel to its service.

        Raises:
            StelaeError: nobody takes it, or its service refused it; the parcel is to be refused.
        """
        deadline_ms_max = self._common.settings.deadline_ms_max
        service = self._services.find(parcel, connection.lane, deadline_ms_max)
        if service.on_message is not None:
            message = Message(
                sender=connection.sender,
                sender_incarnation=connection.incarnation,
                kind=parcel.kind,
                body=body,
                fields=parcel.fields or {},
            )
            error = self._guard(parcel.kind, partial(service.on_message, message))
            if error is not None:
                raise error
        elif service.on_request is not None:
            if parcel.request_id in connection.requests:
                self._common.metrics.count("wire_requests_repeated")
                return
            request = self._open(connection, parcel, body, now_us)
            error = self._guard(parcel.kind, partial(service.on_request, request))
            if error is not None:
                request.refuse(error)

    def cancel(self, connection: Inbound, request_id: int) -> None:
        """The caller gave up."""
        request = connection.requests.get(request_id)
        if request is not None:
            self._abandon(request)

    def forget(self, connection: Inbound) -> None:
        """The connection is gone, and nobody waits for the answers to its requests."""
        for request in list(connection.requests.values()):
            self._abandon(request)

    def on_time(self, now_us: int) -> None:
        """Abandon the requests that are past their deadline."""
        for request in self._deadlines.pop_due(now_us):
            self._abandon(request)

    def next_due_us(self) -> int | None:
        """When ``on_time`` is wanted."""
        return self._deadlines.next_due_us()

    def _open(
        self, connection: Inbound, parcel: Parcel, body: list[Buffer], now_us: int
    ) -> Request:
        if len(connection.requests) >= self._common.settings.requests_open_max:
            raise Overloaded("too many unanswered requests on this connection")
        request = Request(
            sender=connection.sender,
            sender_incarnation=connection.incarnation,
            kind=parcel.kind,
            request_id=parcel.request_id,
            deadline_us=now_us + parcel.deadline_ms * 1000,
            trace_id=parcel.trace_id,
            fields=parcel.fields or {},
            body=body,
            connection=connection,
            dispatcher=self,
        )
        request.bucket = self._deadlines.add(request.deadline_us, request)
        connection.requests[parcel.request_id] = request
        self._wake_at(request.deadline_us)
        return request

    def answer(
        self,
        request: Request,
        frames: Sequence[Buffer],
        fields: Fields | None,
        *,
        is_error: bool,
    ) -> bool:
        """Queue the answer of an open request, and close it."""
        lengths = measure(frames, self._common.settings)
        self._close(request)
        self._departures.add(
            request.connection,
            ERROR if is_error else REPLY,
            request_id=request.request_id,
            fields=fields,
            frames=frames,
            lengths=lengths,
        )
        return True

    def _close(self, request: Request) -> None:
        request.open = False
        request.connection.requests.pop(request.request_id, None)
        self._deadlines.discard(request.bucket, request)

    def _abandon(self, request: Request) -> None:
        self._close(request)
        self._common.metrics.count("wire_requests_abandoned")
        if request.cancelled is not None:
            self._guard(request.kind, request.cancelled)

    def _guard(self, kind: str, handle: Callable[[], None]) -> StelaeError | None:
        """Run a handler. Whatever it raises ends the request, never the node."""
        try:
            handle()
        except StelaeError as error:
            return error
        except Exception:
            _log.exception("handler failed kind=%s", kind)
            self._common.metrics.count("wire_handlers_failed")
            return HandlerFailed(f"the service of {kind!r} met an unexpected error")
        return None
