"""Placing tablets by hand: what masters do by themselves, for people and tests. Async, like the client below it."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.client.connection import Client
from stelae.protocol.codec import encode
from stelae.protocol.replica_messages import (
    CREATE_TABLET,
    DELETE_TABLET,
    TRANSFER_LEADERSHIP,
    CreateTablet,
    DeleteTablet,
    TransferTabletLeadership,
)
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.schema import Schema

CALL_MS = 30_000
"""Deadline of one operation, in milliseconds: a few dozen syncs of a slow disk."""


class Admin:
    """Operations on the replicas of single nodes. May be repeated: what is done already is done."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create_replica(
        self,
        node: NodeId,
        tablet_id: TabletId,
        schema: Schema,
        members: Sequence[tuple[NodeId, str]],
        *,
        table_name: str = "",
    ) -> None:
        """Create one replica of a new tablet; to be done on each of its members, of which the first leads first.

        Raises:
            RetryableError: the node did not answer in time, or another operation on the tablet is under way.
            CallerError: a tablet of this id is, or was, there; or the node is no member.
        """
        asked = CreateTablet(tablet_id, table_name, schema.to_bytes(), tuple(members))
        await self._client.ask(node, CREATE_TABLET, encode(asked), deadline_ms=CALL_MS)

    async def delete_replica(
        self, node: NodeId, tablet_id: TabletId, reason: str, *, seen: OpId | None = None, table_is_gone: bool = False
    ) -> None:
        """Delete one replica: a tombstone stays that votes, its data go to quarantine.

        The fence is the op id of the tablet's committed config that was ``seen``, or that the ``table_is_gone``.

        Raises:
            RetryableError: the node did not answer in time, or another operation on the tablet is under way.
            CallerError: it was never there; or another config was committed there, and nothing was deleted.
        """
        asked = DeleteTablet(tablet_id, reason, seen, table_is_gone)
        await self._client.ask(node, DELETE_TABLET, encode(asked), deadline_ms=CALL_MS)

    async def transfer_leadership(self, leader: NodeId, tablet_id: TabletId, to: NodeId | None = None) -> None:
        """Have the leader of a tablet hand over, to a voter or to the best one; writes wait for an election timeout at
        most.

        Raises:
            NotLeader: the node does not lead the tablet.
            Unavailable: nobody took over in time; the leader leads on.
            CallerError: ``to`` is no voter of the tablet.
        """
        await self._client.ask(leader, TRANSFER_LEADERSHIP, encode(TransferTabletLeadership(tablet_id, to)))
