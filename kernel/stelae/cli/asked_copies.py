"""Asks tablet servers for the copies to them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from stelae.cli.copy_amount import CopyAmount, amount_of
from stelae.client.catalog import CatalogClient
from stelae.client.connection import Connection
from stelae.protocol.codec import decode, encode
from stelae.protocol.copy_list_messages import COPIES, CopiesReply, CopiesRequest
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import PROMOTED
from stelae.spi.policy import PolicySnapshot, TabletView

ASK_MS = 3_000
"""Longest wait for one tablet server, in milliseconds. Several are asked at the same time."""


async def ask_copies(
    connection: Connection, address: str, node_id: NodeId, deadline_ms: int = ASK_MS
) -> CopiesReply | None:
    """Return the copies to a server, or ``None`` if it does not tell: it is down, of an older release, or replaced."""
    try:
        if await connection.reach(address, deadline_ms=deadline_ms) != node_id:
            return None
        answer = await connection.ask(node_id, COPIES, encode(CopiesRequest()), deadline_ms=deadline_ms)
    except StelaeError:
        return None
    return decode(answer.body[0], CopiesReply)


def targets_of(snapshot: PolicySnapshot, leaving: NodeId | None = None) -> dict[NodeId, set[TabletId]]:
    """Return the tablets on the move by the server that gets a replica.

    Args:
        snapshot: the cluster as the masters' policy sees it.
        leaving: only tablets that have a replica on this server; ``None``: all.
    """
    targets: dict[NodeId, set[TabletId]] = {}
    for tablet, view in snapshot.tablets.items():
        if leaving is None or any(replica.node_id == leaving for replica in view.replicas):
            for node in _joining(view):
                targets.setdefault(node, set()).add(tablet)
    return targets


def _joining(view: TabletView) -> Iterator[NodeId]:
    return (one.node_id for one in view.replicas if one.copying or one.member_type in PROMOTED)


class CopyLooks:
    """Looks at the copies of a cluster whose masters move replicas.

    Args:
        connection: to the tablet servers.
        catalog: knows their addresses.
    """

    def __init__(self, connection: Connection, catalog: CatalogClient) -> None:
        self._connection = connection
        self._catalog = catalog
        self._addresses: Mapping[NodeId, str] = {}

    async def amount(self, snapshot: PolicySnapshot, leaving: NodeId | None = None) -> CopyAmount:
        """Return how far the copies of the tablets on the move are together; see ``targets_of``.

        Only the servers that get a replica are asked. One that does not answer is left out."""
        targets = targets_of(snapshot, leaving)
        if not targets.keys() <= self._addresses.keys():
            self._addresses = {one.node_id: one.address for one in (await self._catalog.list_servers()).servers}
        asked = [node for node in targets if node in self._addresses]
        answers = await asyncio.gather(*(ask_copies(self._connection, self._addresses[node], node) for node in asked))
        told = zip(asked, answers, strict=True)
        return amount_of(
            one for node, answer in told if answer for one in answer.copies if one.tablet_id in targets[node]
        )
