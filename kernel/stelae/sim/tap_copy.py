"""The tap on a copy transport: forwards every call, and reports which copies a node serves and who ends them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stelae.sim.fact_feed import FactFeed
from stelae.sim.world import ObservedNode
from stelae.spi.copy import (
    CopyContent,
    CopySession,
    CopySource,
    CopyTarget,
    CopyTransport,
    SessionKey,
    SessionView,
    SourceAnswer,
    SourceRequest,
)
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.services import EngineServices


class CopyTap:
    """The transport of one node, with a tap on its serving side."""

    def __init__(self, engine: type[CopyTransport], node: ObservedNode, facts: FactFeed) -> None:
        self._engine = engine
        self._node = node
        self._facts = facts

    def source(self, config: Any, services: EngineServices, incarnation: str) -> CopySource:
        """Make the serving side, with the tap."""
        return CopySourceTap(self._engine.source(config, services, incarnation), self._node, self._facts)

    def target(self, config: Any, services: EngineServices) -> CopyTarget:
        """Make the fetching side, as it is."""
        return self._engine.target(config, services)


class CopySourceTap(CopySource):
    """The serving side of a transport, with a tap. Behaves exactly like ``inner``."""

    def __init__(self, inner: CopySource, node: ObservedNode, facts: FactFeed) -> None:
        self._inner = inner
        self._node = node
        self._facts = facts

    def begin(self, key: SessionKey, take: Callable[[], CopyContent]) -> CopySession:
        """As ``inner``. Report the session."""
        session = self._inner.begin(key, take)
        self._facts.copy_served(self._node, key.peer, session)
        return session

    def answer(self, peer: NodeId, request: SourceRequest) -> SourceAnswer:
        """As ``inner``."""
        return self._inner.answer(peer, request)

    def end(self, peer: NodeId, session: str) -> None:
        """As ``inner``. Report the end of a session that was still open."""
        if any((view.id, view.key.peer) == (session, peer) for view in self._inner.sessions()):
            self._facts.copy_ended(self._node, session)
        self._inner.end(peer, session)

    def end_all(self, tablet_id: TabletId | None = None) -> None:
        """As ``inner``."""
        self._inner.end_all(tablet_id)

    def expire(self) -> None:
        """As ``inner``."""
        self._inner.expire()

    def sessions(self) -> Sequence[SessionView]:
        """As ``inner``."""
        return self._inner.sessions()
