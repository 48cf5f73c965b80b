"""Tracks which node a client asks next: the leader of a tablet, as far as the client knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stelae.spi.ids import NodeId


class LeaderTracker:
    """Remembers the members of a tablet and its leader. While the leader is unknown, it goes through the members in
    turn.

    The members of a tablet change while clients use it. The tracker notices that it may not know all of them, when a
    node names a leader that it does not know, or when each member was asked in vain. It then calls ``on_lost``, whose
    owner looks the members up and calls :meth:`learn`.

    A node that is no member any more may name a leader that has lost its replica. So a node that was named as leader
    and did not serve is not followed again until the others were asked too. Otherwise two such nodes could send the
    client back and forth, and it would never ask the members that serve.

    Args:
        members: node ids of the tablet's replicas, at least one.
    """

    def __init__(self, members: Sequence[NodeId]) -> None:
        self._members = list(members)
        self._position = 0
        self._in_vain = 0
        self._was_named = False  # True if another node named the current one as leader.
        self._named_wrongly: set[NodeId] = set()
        self.changes = 0
        """How many times the tracker moved to another node."""
        self.on_lost: Callable[[], None] | None = None
        """Called when the members may have changed. It is called again until :meth:`learn` is."""

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
        self._note_if_named_wrongly()
        known = hint is None or hint == node or hint in self._members
        if hint is not None and hint != node and known and hint not in self._named_wrongly:
            self._move_to(self._members.index(NodeId(hint)))
            self._was_named = True
            self._in_vain = 0
            return True
        self._move_to(self._position + 1)
        self._asked_in_vain(1 if known else len(self._members))
        return False

    def failed(self, node: NodeId) -> None:
        """Record that a node could not be reached or could not serve, and move to the next node."""
        if node == self.current:
            self._note_if_named_wrongly()
            self._move_to(self._position + 1)
            self._asked_in_vain(1)

    def served(self) -> None:
        """Record that a node has served: what other nodes name as leader is followed again."""
        self._named_wrongly.clear()

    def learn(self, members: Sequence[NodeId], leader: NodeId | None = None) -> None:
        """Replace the members, at least one. Continue with ``leader`` if it is given, else with the same node as before
        if it still is a member."""
        before = self.current
        self._members = list(members)
        self._in_vain = 0
        self._named_wrongly.clear()
        following = leader if leader in self._members else before
        self._position = self._members.index(following) if following in self._members else 0
        self.changes += self.current != before

    def _asked_in_vain(self, count: int) -> None:
        self._in_vain += count
        if self._in_vain < len(self._members):
            return
        self._named_wrongly.clear()
        if self.on_lost is not None:
            self.on_lost()

    def _note_if_named_wrongly(self) -> None:
        if self._was_named:
            self._named_wrongly.add(self.current)

    def _move_to(self, position: int) -> None:
        self._position = position % len(self._members)
        self._was_named = False
        self.changes += 1
