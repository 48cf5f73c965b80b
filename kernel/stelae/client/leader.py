"""Whom to ask: the leader of a tablet, as far as a client knows."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.ids import NodeId


class LeaderTracker:
    """Remembers a tablet's leader; tries the members in turn while it is unknown.

    Args:
        members: node ids of the tablet's replicas, at least one.
    """

    def __init__(self, members: Sequence[NodeId]) -> None:
        self._members = list(members)
        self._position = 0
        self.changes = 0
        """How often another node was tried."""

    @property
    def members(self) -> Sequence[NodeId]:
        """The node ids, in the order in which they are tried."""
        return self._members

    @property
    def current(self) -> NodeId:
        """The node to ask next."""
        return self._members[self._position]

    def refused_by(self, node: NodeId, hint: str | None) -> bool:
        """A node said that it does not lead, and perhaps who does.

        True if that gives a new node to ask at once; false if a pause is due first."""
        if node != self.current:
            return True
        if hint is not None and hint != node and hint in self._members:
            self._go(self._members.index(NodeId(hint)))
            return True
        self._go(self._position + 1)
        return False

    def failed(self, node: NodeId) -> None:
        """A node could not be reached or could not serve: try the next one."""
        if node == self.current:
            self._go(self._position + 1)

    def _go(self, position: int) -> None:
        self._position = position % len(self._members)
        self.changes += 1
