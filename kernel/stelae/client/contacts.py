"""Finds a cluster by nodes that an earlier client has known.

The masters of a cluster may all be replaced while programs run. A program that starts again, or that starts workers,
then has only the addresses that its user has given once. ``AsyncClient.contacts`` returns what such a worker needs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from stelae.client.connection import Connection
from stelae.client.leader_tracker import LeaderTracker
from stelae.spi.errors import Unavailable
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
    """Connect to the given addresses, or else through one of the contacts.

    The given addresses win: if another cluster runs there, the contacts are not used. Each contact is tried by itself,
    because a node of another cluster may have its address by now.

    Raises:
        Unavailable: no node answered in time.
        ConfigError: an address is not ``host:port``.
    """
    if contacts is None or timeout_s <= GIVEN_S:
        return await Connection.connect(given, timeout_s=timeout_s)
    try:
        return await Connection.connect(given, timeout_s=GIVEN_S)
    except Unavailable:
        left_s = timeout_s - GIVEN_S
    attempts = [asyncio.ensure_future(Connection.connect(given, timeout_s=left_s))]
    for address in contacts.addresses:
        by_contact = Connection.connect([address], cluster_id=contacts.cluster_id, timeout_s=left_s)
        attempts.append(asyncio.ensure_future(by_contact))
    made: Connection | None = None
    try:
        made = await _first_made(attempts)
        return made
    finally:
        for attempt in attempts:
            is_over = not attempt.cancel() and not attempt.cancelled()
            if is_over and attempt.exception() is None and attempt.result() is not made:
                attempt.result().close()


async def _first_made(attempts: Sequence[asyncio.Future[Connection]]) -> Connection:
    """Return the connection that is made first.

    The first attempt is that of the given addresses: its error counts if all fail, or if it is no ``Unavailable``."""
    given, waiting = attempts[0], {*attempts}
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if given.done() and (error := given.exception()) is not None and not isinstance(error, Unavailable):
            break
        for attempt in attempts:
            if attempt in done and attempt.exception() is None:
                return attempt.result()
    return given.result()
