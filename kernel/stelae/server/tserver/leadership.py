"""Transfers the leadership of tablets to other nodes: on request, and before a node stops."""

from __future__ import annotations

import asyncio
import logging

from stelae.host.node import Node
from stelae.protocol.codec import decode
from stelae.protocol.tablet_messages import TRANSFER_LEADERSHIP, TransferRequest
from stelae.server.frames import only_frame
from stelae.server.tserver.member_service import check_config_id
from stelae.server.tserver.tablet_service import replica_of
from stelae.spi.consensus import Role
from stelae.spi.errors import StelaeError
from stelae.spi.ids import node_id
from stelae.wire.requests import Request

log = logging.getLogger(__name__)


class LeadershipService:
    """Serves requests to transfer the leadership of a node's replicas. A ``Service`` (``stelae.spi.hooks``)."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def start(self) -> None:
        """Register the handler."""
        self._node.messenger.serve(TRANSFER_LEADERSHIP, self._transfer)

    def stop(self) -> None:
        """Do nothing: the service holds no resources."""

    def _transfer(self, request: Request) -> None:
        asked = decode(only_frame(request), TransferRequest)

        def done(error: StelaeError | None) -> None:
            if error is None:
                request.reply()
            else:
                request.refuse(error)

        to = None if asked.to is None else node_id(asked.to)
        replica = replica_of(self._node, asked.tablet_id)
        check_config_id(replica, asked.committed_config_id)
        replica.transfer(to, done)


async def hand_over(node: Node) -> None:
    """Transfer every leadership of a node to the best other voter. Called before the node stops.

    This takes at most one election timeout. If no voter can take over, the node still leads when it stops, and the
    followers elect a leader after their timeout."""
    loop = asyncio.get_running_loop()
    waits = []
    for tablet_id, replica in node.replicas.items():
        if replica.status.role is Role.LEADER and replica.status.peers:
            ended: asyncio.Future[StelaeError | None] = loop.create_future()
            replica.transfer(None, ended.set_result)
            waits.append((tablet_id, ended))
    for tablet_id, ended in waits:
        error = await ended
        if error is None:
            log.info("leadership transferred tablet=%s", tablet_id)
        else:
            log.info("leadership not transferred tablet=%s reason=%s", tablet_id, error)
