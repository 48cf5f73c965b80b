"""Asks the other masters whom they take for the masters of the cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

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
        try:
            found = await asyncio.gather(*map(self._objection_of, others))
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
            listed = dict(decode((await call).body[0], NodeInfo).masters)
        except StelaeError as error:
            return f"master {where} does not answer ({error}): all masters have to run when a cluster first starts"
        if set(listed) == set(self._mine):  # By uuid: one may reach them under other names than another.
            return ""
        return (
            f"master {where} names the masters {_text(listed)}, this one {_text(self._mine)}: "
            "make [masters] alike in every node.toml, and format those anew that have served nobody"
        )


def _text(listed: Mapping[NodeId, str]) -> str:
    return ", ".join(f"{address} ({node_id[:8]})" for node_id, address in sorted(listed.items())) or "none"
