"""Decides which followers a leader reports as unhealthy: those that have not acknowledged a heartbeat for too long.

A node acknowledges a leader's heartbeat for all of its replicas except those that have failed or do not exist, so
these count as silent. The time starts again with each leadership, because a new leader has not heard from any follower
yet. This is a pure core."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from stelae.spi.consensus_events import PeerAlive
from stelae.spi.ids import NodeId, TabletId


class FollowerHealth:
    """Remembers when the leaders on one node last heard from each follower.

    Args:
        unhealthy_ms: a member that has been silent for longer is unhealthy.
    """

    def __init__(self, unhealthy_ms: int) -> None:
        self._unhealthy_us = unhealthy_ms * 1000
        self._terms: dict[TabletId, int] = {}
        self._heard: dict[TabletId, dict[NodeId, int]] = {}

    def leads(
        self, tablet_id: TabletId, term: int, members: Iterable[NodeId], alive: Iterable[PeerAlive], now_us: int
    ) -> tuple[NodeId, ...]:
        """Record what the leader of a tablet has heard, and return its unhealthy members in order of node ids.

        Args:
            term: of the leadership.
            members: the members of its config, without itself.
            alive: the followers that acknowledged a heartbeat of this term, and when, in monotonic microseconds.
            now_us: monotonic microseconds.
        """
        if self._terms.get(tablet_id) != term:
            self._terms[tablet_id], self._heard[tablet_id] = term, {}
        before, acknowledged = self._heard[tablet_id], {peer.peer: peer.heard_at_us for peer in alive}
        # The time of a new member starts now. A member that has left is forgotten.
        heard = {member: max(before.get(member, now_us), acknowledged.get(member, 0)) for member in members}
        self._heard[tablet_id] = heard
        return tuple(sorted(member for member, at_us in heard.items() if now_us - at_us > self._unhealthy_us))

    def keep(self, leading: Collection[TabletId]) -> None:
        """Forget every tablet that this node does not lead."""
        for tablet_id in self._terms.keys() - set(leading):
            del self._terms[tablet_id], self._heard[tablet_id]
