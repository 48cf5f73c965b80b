"""Finds a cluster by nodes that an earlier client has known.

The masters of a cluster may all be replaced while programs run. A program that starts again, or that starts workers,
then has only the addresses that its user has given once. ``AsyncClient.contacts`` returns what such a worker needs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from stelae.client.connection import Connection
from stelae.client.leader_tracker import LeaderTracker
from stelae.spi.errors import StelaeError, Unavailable
from stelae.spi.ids import ClusterId

GIVEN_S = 1.0
"""How long only the given addresses are tried, in seconds, before those of the contacts are tried, too."""

SERVERS_MAX = 8
"""The most tablet servers among the contacts: each of them knows the masters."""


class Contacts(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of a cluster that name its present masters, also when other masters have replaced them."""

    cluster_id: ClusterId  #: Nodes of another cluster refuse a client that looks for this one.
    addresses: tuple[str, ...]  #: Of the masters, then of some tablet servers.

    def and_also(self, other: Contacts | None) -> Contacts:
        """Return these contacts, followed by others of the same cluster."""
        if other is None or other.cluster_id != self.cluster_id:
            return self
        addresses = tuple(dict.fromkeys([*self.addresses, *other.addresses]))
        return Contacts(cluster_id=self.cluster_id, addresses=addresses)


def contacts_of(connection: Connection, masters: LeaderTracker | None) -> Contacts:
    """Return the masters and tablet servers that a connection knows; without ``masters``, the nodes that it knows."""
    first = [*masters.members] if masters is not None else []
    others = [node for node in connection.addresses if node not in first]
    known = [connection.addresses[node] for node in [*first, *others[:SERVERS_MAX]] if node in connection.addresses]
    return Contacts(cluster_id=connection.cluster_id, addresses=tuple(dict.fromkeys(known)))


async def connect_by(given: Sequence[str], contacts: Contacts | None, timeout_s: float) -> Connection:
    """Connect to the given addresses, or else to the nodes of the contacts as well.

    The given addresses win: if another cluster runs there, the contacts are not used.

    Raises:
        Unavailable: no node answered in time.
        ConfigError: an address is not ``host:port``.
    """
    if contacts is None or timeout_s <= GIVEN_S:
        return await Connection.connect(given, timeout_s=timeout_s)
    deadline = asyncio.get_running_loop().time() + timeout_s
    try:
        return await Connection.connect(given, timeout_s=GIVEN_S)
    except Unavailable:
        pass
    left_s = deadline - asyncio.get_running_loop().time()
    try:
        return await Connection.connect(
            [*given, *contacts.addresses], cluster_id=contacts.cluster_id, timeout_s=max(left_s, GIVEN_S)
        )
    except Unavailable:
        raise
    except StelaeError:  # Nodes of two clusters.
        left_s = deadline - asyncio.get_running_loop().time()
        return await Connection.connect(given, timeout_s=max(left_s, GIVEN_S))
