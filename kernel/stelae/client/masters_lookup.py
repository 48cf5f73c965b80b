"""Finds the present masters by asking every node that a client knows, and takes the newest config.

Masters answer, also those that were removed, and tablet servers. So a client that was idle while all masters were
replaced finds the new ones through the servers of its tables.

A master that waits to join repeats what the masters of its file say, which may be of another cluster with the same id
by mistake. So its answer counts only if it is of the cluster that the client knows, or if there is no other one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from stelae.client.call_times import CALL_MS, left_ms
from stelae.client.connection import Connection
from stelae.client.member_lookup import TabletMembers
from stelae.protocol.codec import decode, encode
from stelae.protocol.masters_messages import MASTERS, MastersRequest, MastersView
from stelae.spi.errors import StelaeError, Unavailable
from stelae.spi.ids import NodeId, OpId

SERVERS_MAX = 8
"""The most tablet servers that are asked besides the masters; others would say the same."""

POLL_S = 0.2
"""Pause between two rounds of questions, in seconds."""


class MastersLookup:
    """The lookups of one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cluster_created_us = 0  #: The creation of the cluster that was found last; 0: none yet.

    async def newest(self, known: Iterable[NodeId], deadline_ms: int = CALL_MS) -> MastersView | None:
        """Return the view with the newest config, of those that know a leader first; ``None`` if no node knows masters.

        Args:
            known: the masters that the client knows.
            deadline_ms: how long to wait for each answer.

        Raises:
            Unavailable: the client is closed.
        """
        connection = self._connection
        connection.check_open()
        masters = dict.fromkeys([*known, *connection.nodes])
        others = [node for node in connection.addresses if node not in masters]
        start = int(connection.rng.random() * max(1, len(others)))
        asked = [*masters, *[*others[start:], *others[:start]][:SERVERS_MAX]]
        request = encode(MastersRequest())
        calls = (connection.ask(node, MASTERS, request, deadline_ms=deadline_ms) for node in asked)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        views: list[MastersView] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                continue
            try:
                views.append(decode(answer.body[0], MastersView))
            except (StelaeError, IndexError):
                continue
        newest = newest_view(views, self._cluster_created_us)
        if newest is not None and newest.cluster_created_us:
            self._cluster_created_us = newest.cluster_created_us
        return newest

    async def view(self, known: Iterable[NodeId], deadline: float) -> MastersView:
        """Return the newest view, and keep links to its masters. ``Unavailable``: no node knew masters in time."""
        loop, known = asyncio.get_running_loop(), [*known]
        while (view := await self.newest(known, min(CALL_MS, left_ms(deadline)))) is None:
            if loop.time() >= deadline:
                raise Unavailable("no node could say which masters there are; check that the masters run")
            await asyncio.sleep(POLL_S)
        self._connection.add_peers(view.members)
        return view

    async def members(self, known: Iterable[NodeId]) -> TabletMembers | None:
        """Return the members of the system tablet, for lookups of members."""
        view = await self.newest(known)
        if view is None or view.config is None:
            raise Unavailable("no node could say which masters there are")
        return TabletMembers(members=view.members, leader=view.leader, config=view.config.op_id)


def newest_view(views: Iterable[MastersView], cluster_created_us: int = 0) -> MastersView | None:
    """Return the view with the newest config, of those that know a leader first; ``None`` if none has masters.

    ``cluster_created_us``: when the cluster that the client knows was created; 0: it knows none yet."""
    named = [view for view in views if view.members]
    sure = [view for view in named if not view.hearsay or view.cluster_created_us == cluster_created_us]
    return max(sure or (() if cluster_created_us else named), key=_rank, default=None)


def _rank(view: MastersView) -> tuple[OpId, bool]:
    assert view.config is not None
    return view.config.op_id, view.leader is not None
