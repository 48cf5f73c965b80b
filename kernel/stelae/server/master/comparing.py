"""Asks the other masters whom they take for the masters of the cluster.

Two things can differ: what a master's node.toml lists now, and the members with which its system tablet began, which
are what counts in an election and which no edit of the file changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from stelae.client.catalog import SYSTEM_TABLET
from stelae.client.messages import decode, encode
from stelae.client.node_messages import NODE, NodeInfo, NodeRequest
from stelae.host.node import Node
from stelae.spi.consensus import Member
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId

log = logging.getLogger(__name__)

ANSWER_MS = 2_000


class ListComparison:
    """Compares this master's list with those of the others, one round at a time.

    Args:
        told: is given why the lists are not known to be alike; an empty text if they are.
    """

    def __init__(self, node: Node, members: Sequence[Member], told: Callable[[str], None]) -> None:
        self._node = node
        self._mine = {member.node_id: member.address for member in members}
        self._told = told
        self._round: asyncio.Task[None] | None = None
        self._last = ""

    def start(self) -> None:
        """Begin a round, unless one is under way."""
        if self._round is None:
            self._round = asyncio.get_running_loop().create_task(self._compare())

    def stop(self) -> None:
        """Tell nothing more."""
        if self._round is not None:
            self._round.cancel()

    async def _compare(self) -> None:
        others = [node_id for node_id in self._mine if node_id != self._node.node_id]
        own = {member.node_id for member in self._node.replicas[SYSTEM_TABLET].status.config.members}
        try:
            found = [self._began_with(self._node.address, own), *await asyncio.gather(*map(self._objection_of, others))]
        finally:
            self._round = None
        objection = "; ".join(filter(None, found))
        if objection not in ("", self._last):
            log.warning("the cluster does not begin: %s", objection)
        self._last = objection
        self._told(objection)

    async def _objection_of(self, master: NodeId) -> str:
        """What one of the others has against it."""
        where = self._mine[master]
        try:
            call = self._node.messenger.call(master, NODE, [encode(NodeRequest())], deadline_ms=ANSWER_MS)
            info = decode((await call).body[0], NodeInfo)
        except StelaeError as error:
            return f"master {where} does not answer ({error}): all masters have to run when a cluster first starts"
        listed = dict(info.masters)
        if set(listed) != set(self._mine):  # By uuid: one may reach them under other names than another.
            return (
                f"master {where} names the masters {_text(listed)}, this one {_text(self._mine)}: "
                "make [masters] alike in every node.toml, and format those anew that have served nobody"
            )
        began = {
            member for replica in info.replicas if replica.tablet_id == SYSTEM_TABLET for member in replica.members
        }
        return self._began_with(where, began) if began else ""

    def _began_with(self, where: str, began: Collection[NodeId]) -> str:
        """What is against a master whose system tablet began with these members."""
        if set(began) == set(self._mine):
            return ""
        named = ", ".join(f"{self._mine.get(node_id, 'another')} ({node_id[:8]})" for node_id in sorted(began))
        return (
            f"master {where} was first started with the masters {named}, and its [masters] lists others now: "
            "unless it has served a cluster, format it anew under the uuid that it has"
        )


def _text(listed: Mapping[NodeId, str]) -> str:
    return ", ".join(f"{address} ({node_id[:8]})" for node_id, address in sorted(listed.items())) or "none"
