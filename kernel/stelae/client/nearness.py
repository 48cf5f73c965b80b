"""Orders the replicas of a tablet by their distance from this process: same host, same rack, same data centre, others.

Reads that any replica may serve ask the nearest one first. Replicas at the same distance are in random order, so that
readers spread over them."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from random import Random

from stelae.spi.ids import NodeId


class Nearness:
    """Knows the distance of nodes.

    Args:
        location: ``/dc/rack/host`` of this process, or the beginning of it; empty: unknown.
        locations: the locations of the nodes, as far as they are known.
        own: the nodes on this host.
    """

    def __init__(
        self, location: str = "", locations: Mapping[NodeId, str] | None = None, own: Collection[NodeId] = ()
    ) -> None:
        self._own = own
        self._locations = locations or {}
        own_locations = [self._locations[node] for node in sorted(own) if self._locations.get(node)]
        self.location = location or next(iter(own_locations), "")
        """Location of this process. If it was not given, that of a node on its host."""

    def distance(self, node: NodeId) -> int:
        """Return 0 for a node on this host, and more for each level of the location that is not shared."""
        if node in self._own:
            return 0
        here, there = (text.strip("/").split("/") for text in (self.location, self._locations.get(node, "")))
        shared = 0
        while shared < min(len(here), len(there)) and here[shared] == there[shared] != "":
            shared += 1
        return 1 + len(here) - shared

    def ordered(self, nodes: Sequence[NodeId], rng: Random) -> list[NodeId]:
        """Return nodes, the nearest first."""
        return sorted(nodes, key=lambda node: (self.distance(node), rng.random()))


@cache
def is_own_host(host: str) -> bool:
    """Return whether a host name or address is one of this machine. Looks the name up, which may take seconds."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)  # Only an address of this machine can be bound.
    except OSError:
        return False
    return True
