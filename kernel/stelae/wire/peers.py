"""The links of a process: two per peer, found by node id, or first by address alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from stelae.spi.errors import CallerError, StelaeError, Unavailable
from stelae.spi.ids import IncarnationId, NodeId
from stelae.wire.addresses import resolver, split_address
from stelae.wire.common import Common
from stelae.wire.edge import Edge
from stelae.wire.link import Link
from stelae.wire.refusals import BREAKS_LINK
from stelae.wire.settings import Lane

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerChange:
    """A lane to a peer came up or went down. ``incarnation`` is the run that it leads, or led."""

    node_id: NodeId
    incarnation: IncarnationId
    lane: Lane
    up: bool


PeerHandler: TypeAlias = Callable[[PeerChange], None]


class Peers:
    """All links."""

    def __init__(self, common: Common, edge: Edge) -> None:
        self._common = common
        self._edge = edge
        self._resolve = resolver(edge.loop)
        self._links: dict[NodeId, dict[Lane, Link]] = {}
        self._strangers: dict[Link, asyncio.Future[NodeId]] = {}
        self._handlers: list[PeerHandler] = []

    def link(self, node_id: NodeId, lane: Lane) -> Link | None:
        """Return a link, up or not."""
        lanes = self._links.get(node_id)
        return None if lanes is None else lanes[lane]

    def on_change(self, handler: PeerHandler) -> None:
        """Call ``handler`` whenever a lane comes up or goes down."""
        self._handlers.append(handler)

    def add(self, node_id: NodeId, address: str) -> None:
        """Keep links to a node, or move those there are to another address."""
        split_address(address)
        if node_id == self._common.identity.node_id:
            raise CallerError("a node is not its own peer")
        lanes = self._links.get(node_id)
        if lanes is not None:
            for link in lanes.values():
                link.move(address)
            return
        self._links[node_id] = {}
        for lane in Lane:
            self._add_lane(node_id, address, lane)

    def remove(self, node_id: NodeId) -> None:
        """Give up the links to a node; harmless when there are none."""
        for link in self._links.pop(node_id, {}).values():
            self._close(link, Unavailable(f"node {node_id} is no longer a peer"))

    def connect(self, address: str, deadline_ms: int) -> asyncio.Future[NodeId]:
        """Learn who lives at an address and keep links to it."""
        split_address(address)
        found: asyncio.Future[NodeId] = self._edge.loop.create_future()
        for node_id, lanes in self._links.items():
            if lanes[Lane.CONTROL].address == address and lanes[Lane.CONTROL].up:
                found.set_result(node_id)
                return found
        link = self._new_link(address, Lane.CONTROL, None)
        self._strangers[link] = found
        timer = self._edge.loop.call_later(
            deadline_ms / 1000, self._give_up, link, f"nobody answers at {address}"
        )
        found.add_done_callback(partial(self._settled, link, timer))
        link.open()
        return found

    def close(self, error: StelaeError) -> None:
        """Close all links; their calls fail with ``error``."""
        for link, found in list(self._strangers.items()):
            if not found.done():
                found.set_exception(error)
            self._close(link, error)
        self._strangers.clear()
        for lanes in self._links.values():
            for link in lanes.values():
                self._close(link, error)
        self._links.clear()

    def _changed(self, link: Link, error: StelaeError | None) -> None:
        found = self._strangers.get(link)
        if error is None:
            if found is None or self._adopt(link, found):
                self._tell(link, up=True)
        elif found is None:
            self._tell(link, up=False)
        elif isinstance(error, BREAKS_LINK) and not found.done():
            # Who asked for an address must hear that it is the wrong one.
            found.set_exception(error)

    def _adopt(self, link: Link, found: asyncio.Future[NodeId]) -> bool:
        """A stranger has said its name: it becomes a peer, unless it is one already."""
        assert link.peer is not None
        del self._strangers[link]
        node_id, lanes = link.peer, self._links.get(link.peer)
        if lanes is None:
            self._links[node_id] = {Lane.CONTROL: link}
            self._add_lane(node_id, link.address, Lane.BULK)
        else:
            # The peer now takes this connection for the newest of its lane, so the old link must
            # open another.
            self._edge.leave(link)
            link.close(Unavailable("another link leads there"))
            lanes[Lane.CONTROL].restart("the same peer was found under another address")
        if not found.done():
            found.set_result(node_id)
        return lanes is None

    def _add_lane(self, node_id: NodeId, address: str, lane: Lane) -> None:
        link = self._new_link(address, lane, node_id)
        self._links[node_id][lane] = link
        link.open()

    def _new_link(self, address: str, lane: Lane, peer: NodeId | None) -> Link:
        link = Link(
            self._common,
            self._edge,
            self._resolve,
            self._changed,
            lane=lane,
            address=address,
            peer=peer,
        )
        self._edge.join(link)
        return link

    def _close(self, link: Link, error: StelaeError) -> None:
        self._edge.leave(link)
        was_up = link.up
        link.close(error)
        if was_up:
            self._tell(link, up=False)

    def _give_up(self, link: Link, reason: str) -> None:
        found = self._strangers.get(link)
        if found is not None and not found.done():
            found.set_exception(Unavailable(f"{reason} ({link.last_failure})"))

    def _settled(
        self, link: Link, timer: asyncio.TimerHandle, found: asyncio.Future[NodeId]
    ) -> None:
        timer.cancel()
        if self._strangers.pop(link, None) is not None:
            self._close(link, Unavailable("nobody waits for this address any more"))

    def _tell(self, link: Link, *, up: bool) -> None:
        if link.peer is None or link.peer_incarnation is None:
            return
        change = PeerChange(
            node_id=link.peer, incarnation=link.peer_incarnation, lane=link.lane, up=up
        )
        for handler in self._handlers:
            try:
                handler(change)
            except Exception:
                # Whoever only watches must not leave a link half way between two states.
                _log.exception("peer handler failed peer=%s up=%s", link.peer, up)
                self._common.metrics.count("wire_handlers_failed")
