"""Which members a leader reports as unhealthy, as a pure core: those that it has not heard from for too long.

A leader's node hears its followers by the heartbeats that they acknowledge; a replica that has failed, or that is not
there, is an exception in the acknowledgement, so it counts as one that was not heard. The time runs anew with each
leadership, since a new leader has yet to hear anybody."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from stelae.spi.consensus import PeerAlive
from stelae.spi.ids import NodeId, TabletId


class Followers:
    """What the leaders of one node have heard.

    Args:
        unhealthy_ms: after so long without a word a member is unhealthy.
    """

    def __init__(self, unhealthy_ms: int) -> None:
        self._unhealthy_us = unhealthy_ms * 1000
        self._terms: dict[TabletId, int] = {}
        self._heard: dict[TabletId, dict[NodeId, int]] = {}

    def leads(
        self, tablet_id: TabletId, term: int, members: Iterable[NodeId], alive: Iterable[PeerAlive], now_us: int
    ) -> tuple[NodeId, ...]:
        """Take what the leader of a tablet has heard, and return who is unhealthy, in order of node ids.

        Args:
            members: the others of its config.
            alive: whose acknowledgement stands, and of when; monotonic microseconds, as ``now_us``.
        """
        if self._terms.get(tablet_id) != term:
            self._terms[tablet_id], self._heard[tablet_id] = term, {}
        before, spoken = self._heard[tablet_id], {peer.peer: peer.heard_at_us for peer in alive}
        # Who joins has as long as everybody else; who has left is forgotten.
        heard = {member: max(before.get(member, now_us), spoken.get(member, 0)) for member in members}
        self._heard[tablet_id] = heard
        return tuple(sorted(member for member, at_us in heard.items() if now_us - at_us > self._unhealthy_us))

    def keep(self, leading: Collection[TabletId]) -> None:
        """Forget every tablet that this node does not lead."""
        for tablet_id in self._terms.keys() - set(leading):
            del self._terms[tablet_id], self._heard[tablet_id]
