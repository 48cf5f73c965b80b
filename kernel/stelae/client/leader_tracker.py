"""Tracks which node a client asks next: the leader of a tablet, as far as the client knows."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.ids import NodeId


class LeaderTracker:
    """Remembers the leader of a tablet. While the leader is unknown, it goes through the members in turn.

    Args:
        members: node ids of the tablet's replicas, at least one.
    """

    def __init__(self, members: Sequence[NodeId]) -> None:
        self._members = list(members)
        self._position = 0
        self.changes = 0
        """How many times the tracker moved to another node."""

    @property
    def members(self) -> Sequence[NodeId]:
        """The node ids, in the order in which they are tried."""
        return self._members

    @property
    def current(self) -> NodeId:
        """The node to ask next."""
        return self._members[self._position]

    def refused_by(self, node: NodeId, hint: str | None) -> bool:
        """Record that a node does not lead, and which node it believes to lead (``hint``).

        Returns true if the next node can be asked at once, and false if the caller should pause first."""
        if node != self.current:
            return True
        if hint is not None and hint != node and hint in self._members:
            self._move_to(self._members.index(NodeId(hint)))
            return True
        self._move_to(self._position + 1)
        return False

    def failed(self, node: NodeId) -> None:
        """Record that a node could not be reached or could not serve, and move to the next node."""
        if node == self.current:
            self._move_to(self._position + 1)

    def _move_to(self, position: int) -> None:
        self._position = position % len(self._members)
        self.changes += 1
