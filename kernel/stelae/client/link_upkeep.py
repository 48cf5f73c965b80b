"""Closes the links of a client to nodes that are gone.

A client keeps links to each node that a config has named. In a cluster whose nodes come and go, a client that lives
long would collect links that try to connect for ever. So a link that is down is closed once nothing has named its node
for a while. A link that is up stays: there are no more of them than nodes that run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping, Set
from typing import Protocol

from stelae.spi.ids import IncarnationId, NodeId

LOOK_S = 30.0
"""Pause between two looks, in seconds."""

UNNAMED_S = 300.0
"""How long a node must be unnamed, and its link down, until the link is closed, in seconds. A node that restarts is
back by then."""


class ClientLinks(Protocol):
    """The part of the messenger that this module uses."""

    @property
    def peers(self) -> Set[NodeId]:
        """The nodes to which links are kept."""
        ...

    def connected(self, node_id: NodeId) -> IncarnationId | None:
        """Return ``None`` if the link to a node is down."""
        ...

    def remove_peer(self, node_id: NodeId) -> None:
        """Close the links to a node."""
        ...


class LinkUpkeep:
    """Looks after the links of one connection, on its event loop, until it is closed.

    Args:
        links: the links.
        named: returns the nodes that the tables, the masters or the user of the client name.
        addresses: the addresses of nodes; those of nodes whose links were closed are removed.
    """

    def __init__(
        self, links: ClientLinks, named: Callable[[], Set[NodeId]], addresses: MutableMapping[NodeId, str]
    ) -> None:
        self._links = links
        self._named = named
        self._addresses = addresses
        self._since: dict[NodeId, float] = {}  #: Since when a node is unnamed and its link is down.
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def close(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def look(self, now_s: float) -> None:
        """Close the links to the nodes that have been gone for long enough."""
        down = {node for node in self._links.peers - self._named() if self._links.connected(node) is None}
        self._since = {node: self._since.get(node, now_s) for node in down}
        for node in [node for node, since_s in self._since.items() if now_s - since_s >= UNNAMED_S]:
            del self._since[node]
            self._links.remove_peer(node)
            self._addresses.pop(node, None)

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)
        self.look(self._loop.time())
