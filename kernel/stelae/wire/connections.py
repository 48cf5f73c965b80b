"""Connections that others have opened to this node: who is behind each, and what it waits for.

Pure bookkeeping, keyed by the routing id that the socket gives each connection. A sender's newest
hello decides which run of it is current; connections of earlier runs are retired, and what still
arrives from such a run is refused.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

from stelae.spi.ids import IncarnationId, NodeId
from stelae.wire.credit import ReceiveCredit, SendCredit
from stelae.wire.parcels import Outbox
from stelae.wire.requests import Request
from stelae.wire.settings import Lane

RUNS_MAX: Final = 8192
"""Present and earlier runs that are remembered, of each kind; the oldest are forgotten first."""


@dataclass(slots=True, kw_only=True, eq=False)
class Inbound:
    """One connection that has said hello."""

    routing_id: bytes
    sender: NodeId
    incarnation: IncarnationId
    lane: Lane
    credit: SendCredit
    received: ReceiveCredit
    outbox: Outbox
    heard_us: int
    requests: dict[int, Request] = field(default_factory=dict)


class Connections:
    """All of them."""

    def __init__(self) -> None:
        self._by_routing_id: dict[bytes, Inbound] = {}
        self._by_lane: dict[tuple[NodeId, Lane], Inbound] = {}
        self._current: OrderedDict[NodeId, IncarnationId] = OrderedDict()
        self._retired: OrderedDict[tuple[NodeId, IncarnationId], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_routing_id)

    def get(self, routing_id: bytes) -> Inbound | None:
        """Return the connection that a message came on."""
        return self._by_routing_id.get(routing_id)

    def all(self) -> list[Inbound]:
        """Return all connections."""
        return list(self._by_routing_id.values())

    def is_retired(self, sender: NodeId, incarnation: IncarnationId) -> bool:
        """Whether a run of a sender has been superseded."""
        return (sender, incarnation) in self._retired

    def add(self, connection: Inbound) -> list[Inbound]:
        """Enter a connection; return those that it supersedes, which are removed.

        They are the sender's connection of the same lane, and all of its earlier runs.
        """
        sender, incarnation = connection.sender, connection.incarnation
        superseded = [
            old
            for old in self._lanes(sender)
            if old.lane is connection.lane or old.incarnation != incarnation
        ]
        for old in superseded:
            self.remove(old)
        previous = self._current.pop(sender, incarnation)
        if previous != incarnation:
            self._retired[(sender, previous)] = None
        self._current[sender] = incarnation
        _trim(self._retired)
        _trim(self._current)
        self._by_routing_id[connection.routing_id] = connection
        self._by_lane[(sender, connection.lane)] = connection
        return superseded

    def remove(self, connection: Inbound) -> None:
        """Forget a connection; harmless when it is not there."""
        if self._by_routing_id.pop(connection.routing_id, None) is not None:
            self._by_lane.pop((connection.sender, connection.lane), None)

    def _lanes(self, sender: NodeId) -> list[Inbound]:
        found = (self._by_lane.get((sender, lane)) for lane in Lane)
        return [connection for connection in found if connection is not None]


def _trim(runs: OrderedDict[Any, Any]) -> None:
    while len(runs) > RUNS_MAX:
        runs.popitem(last=False)
