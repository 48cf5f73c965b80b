"""The requests that a master has taken and not answered yet."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import msgspec

from stelae.protocol.codec import decode, encode
from stelae.protocol.master_heartbeats import HEARTBEAT, Heartbeat
from stelae.protocol.master_messages import CHANGE, READ, CatalogReadRequest, ChangeRequest
from stelae.server.frames import only_frame
from stelae.server.master.core.events import ChangeAsked, Event, HeartbeatReceived, ReadAsked, Refuse, Reply
from stelae.server.master.driver.ports import IncomingRequest, MasterNode
from stelae.server.master.driver.server_links import ServerLinks
from stelae.spi.errors import CallerError, PeerError, Unavailable
from stelae.wire.refusals import error_of

log = logging.getLogger(__name__)

_Message = TypeVar("_Message", bound=msgspec.Struct)


class OpenRequests:
    """Makes an event of each request of a client or a tablet server, and gives each its answer.

    Args:
        is_ready: whether the core has begun; requests are refused before.
        check_present: raises the refusal of changes and reads if this master was removed. Heartbeats are answered then,
            too: the answer has the newer config.
        take: takes an event for the core's next step.
        links: to the servers that are heard.
    """

    def __init__(
        self,
        node: MasterNode,
        is_ready: Callable[[], bool],
        check_present: Callable[[], None],
        take: Callable[[Event], None],
        links: ServerLinks,
    ) -> None:
        self._node = node
        self._links = links
        self._is_ready = is_ready
        self._check_present = check_present
        self._take = take
        self._open: dict[int, IncomingRequest] = {}
        self._last_token = 0

    def serve(self) -> None:
        """Register the handlers."""
        messenger = self._node.messenger
        messenger.serve(CHANGE, self._change)
        messenger.serve(READ, self._read)
        messenger.serve(HEARTBEAT, self._heartbeat)

    def answer(self, effect: Reply | Refuse) -> None:
        """Send the answer of the core. The caller gets a ``CallerError`` if no message can hold the answer."""
        request = self._open.pop(effect.token)
        if isinstance(effect, Refuse):
            request.refuse(error_of({"code": effect.code, "text": effect.detail, "leader": effect.leader}))
            return
        try:
            request.reply([encode(effect.body)])
        except CallerError as error:
            log.exception("no answer to %s of %s", request.kind, request.sender)
            request.refuse(error)

    def _change(self, request: IncomingRequest) -> None:
        self._node.metrics.count("master_changes_asked")
        change = self._decode(request, ChangeRequest)
        self._check_present()
        self._take(ChangeAsked(self._token(request), change))

    def _read(self, request: IncomingRequest) -> None:
        read = self._decode(request, CatalogReadRequest)
        self._check_present()
        self._take(ReadAsked(self._token(request), read))

    def _heartbeat(self, request: IncomingRequest) -> None:
        heartbeat = self._decode(request, Heartbeat)
        if heartbeat.node_id != request.sender:
            raise PeerError(f"node {request.sender} reports in the name of {heartbeat.node_id}")
        metrics = self._node.metrics
        metrics.count("master_heartbeats_received")
        if heartbeat.report is not None:
            metrics.count("master_reports_full" if heartbeat.report.full else "master_reports_incremental")
        self._links.use(heartbeat.node_id, heartbeat.address)
        self._take(HeartbeatReceived(self._token(request), heartbeat))

    def _decode(self, request: IncomingRequest, kind: type[_Message]) -> _Message:
        message = decode(only_frame(request), kind)
        if not self._is_ready():
            raise Unavailable("this master is starting")
        return message

    def _token(self, request: IncomingRequest) -> int:
        self._last_token += 1
        self._open[self._last_token] = request
        return self._last_token
