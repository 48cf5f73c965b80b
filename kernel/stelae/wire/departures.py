"""The outgoing side of a node's listening socket: replies and refusals to those who connected.

Replies are queued per connection, coalesced per turn, and held back while the caller's credit is
used up. A caller that lets more than a bounded amount pile up loses its connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from stelae.spi.errors import StelaeError
from stelae.spi.services import Buffer
from stelae.wire.common import Common
from stelae.wire.connections import Inbound
from stelae.wire.envelope import Envelope, Parcel
from stelae.wire.parcels import ERROR, FREE_KINDS, REFUSED, Outbox
from stelae.wire.refusals import Fields, error_fields
from stelae.wire.sockets import RouterPort, SendResult

REFUSALS_MAX: Final = 64
"""Calls of one refused message that are answered one by one; the others meet their deadline."""


class Departures:
    """See the module. ``lost`` is told of connections that are gone or do not read."""

    def __init__(
        self,
        common: Common,
        port: RouterPort,
        dirty: Callable[[], None],
        lost: Callable[[Inbound], None],
    ) -> None:
        self._common = common
        self._port = port
        self._dirty = dirty
        self._lost = lost
        self._unsent: dict[Inbound, None] = {}

    def add(
        self,
        connection: Inbound,
        kind: str,
        *,
        request_id: int = 0,
        fields: Fields | None = None,
        frames: Sequence[Buffer] = (),
        lengths: list[int] | None = None,
    ) -> None:
        """Queue one parcel for the end of this turn."""
        connection.outbox.add(kind, request_id, 0, "", fields, frames, lengths or [])
        self.mark(connection)

    def mark(self, connection: Inbound) -> None:
        """Look at a connection's queue at the end of this turn."""
        if not self._unsent:
            self._dirty()
        self._unsent[connection] = None

    def forget(self, connection: Inbound) -> None:
        """Drop what waits for a connection."""
        self._unsent.pop(connection, None)
        connection.outbox.clear()

    def flush(self) -> None:
        """Write what was queued, as far as credit goes."""
        unsent, self._unsent = self._unsent, {}
        for connection in unsent:
            self._flush_one(connection)

    def refuse_message(
        self, routing_id: bytes, envelope: Envelope | None, error: StelaeError
    ) -> None:
        """Answer a message that was refused whole: once for it, and once per call in it."""
        self._common.refused(error)
        fields = error_fields(error)
        outbox = self._common.outbox()
        outbox.add(REFUSED, 0, 0, "", fields, (), [])
        recipient = recipient_incarnation = ""
        if envelope is not None:
            recipient, recipient_incarnation = envelope.sender, envelope.sender_incarnation
            calls = [p for p in envelope.parcels if p.request_id and p.kind not in FREE_KINDS]
            for parcel in calls[:REFUSALS_MAX]:
                outbox.add(ERROR, parcel.request_id, 0, "", fields, (), [])
        self._write_uncounted(routing_id, outbox, recipient, recipient_incarnation)

    def refuse_parcel(self, connection: Inbound, parcel: Parcel, error: StelaeError) -> None:
        """Answer one parcel that was refused."""
        self._common.refused(error)
        kind = ERROR if parcel.request_id else REFUSED
        self.add(connection, kind, request_id=parcel.request_id, fields=error_fields(error))

    def _flush_one(self, connection: Inbound) -> None:
        outbox, credit = connection.outbox, connection.credit
        while (batch := outbox.peek()) is not None:
            if not credit.take(batch.cost):
                break
            outbox.take()
            frames = self._common.message(
                batch,
                recipient=connection.sender,
                recipient_incarnation=connection.incarnation,
                credit=connection.received.report(),
            )
            self._common.send_through(
                connection.sender, batch.cost, credit, partial(self._put, connection, frames)
            )
        if outbox.cost > self._common.settings.reply_backlog_bytes_max:
            self._common.metrics.count("wire_connections_overrun")
            self._lost(connection)

    def _put(self, connection: Inbound, frames: Sequence[Buffer]) -> None:
        if self._port.send(connection.routing_id, frames) is not SendResult.SENT:
            self._common.metrics.count("wire_connections_lost")
            self._lost(connection)

    def _write_uncounted(
        self, routing_id: bytes, outbox: Outbox, recipient: str, recipient_incarnation: str
    ) -> None:
        while (batch := outbox.take()) is not None:
            frames = self._common.message(
                batch,
                recipient=recipient,
                recipient_incarnation=recipient_incarnation,
                credit=0,
            )
            if self._port.send(routing_id, frames) is not SendResult.SENT:
                self._common.metrics.count("wire_refusals_unsent")
                return
