"""Keeps links to the nodes that a node has to reach: members of its tablets, sources of copies, and recent senders.

A node that sends may be no member of any config here: a member that was added while this replica was away, or one that
was removed and does not know it. It needs an answer, so it gets links. They are closed once it has sent nothing for
some election timeouts. By then it follows a leader, knows of its removal, or is down.

The source of a copy may be no member of any config here either. Its links are kept as long as a session may be open."""

from typing import Protocol

from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import TabletConfig

IDLE_BEATS = 50
"""Heartbeat intervals, so about ten election timeouts, after which links to a silent node that is no member are closed.
A candidate that gets no answer sends again within two election timeouts."""


class PeerLinks(Protocol):
    """The part of the messenger that this module uses."""

    def add_peer(self, node_id: NodeId, address: str) -> None:
        """Keep links to a node. If there are links already, change their address."""

    def remove_peer(self, node_id: NodeId) -> None:
        """Close the links to a node."""

    def learn_peer(self, node_id: NodeId, address: str = "") -> bool:
        """Open links to a node, at an address or at the one that it has said.

        Return False if there are links, which move to an address that is given, or no address is known."""

    def forget_peer(self, node_id: NodeId) -> None:
        """Close the links to a node that ``learn_peer`` opened, unless something else needs them since."""


class MemberLinks:
    """The links of one node. A config of any of its replicas can open one, change its address, or close it."""

    def __init__(self, node_id: NodeId, links: PeerLinks) -> None:
        self._node_id = node_id
        self._links = links
        self._members: dict[TabletId, dict[NodeId, str]] = {}
        self._learned: dict[NodeId, int] = {}  # Nodes that no config lists, and when each was last needed.

    def config_changed(self, tablet_id: TabletId, config: TabletConfig) -> None:
        """Note the config in force of a replica of this node."""
        before = self._members.get(tablet_id, {})
        now = {m.node_id: m.address for m in config.members if m.node_id != self._node_id}
        self._members[tablet_id] = now
        for node_id, address in now.items():
            self._learned.pop(node_id, None)
            if before.get(node_id) != address:
                self._links.add_peer(node_id, address)
        self._close(set(before) - set(now))

    def forget(self, tablet_id: TabletId) -> None:
        """Note that the node has no replica of a tablet any more."""
        self._close(set(self._members.pop(tablet_id, {})))

    def heard(self, node_id: NodeId, now_us: int) -> None:
        """Note that a node has sent a message, and keep links to it for the answer, even if no config lists it."""
        if node_id in self._learned or self._links.learn_peer(node_id):
            self._needed(node_id, now_us)

    def reach(self, node_id: NodeId, address: str, until_us: int) -> None:
        """Keep links to the source of a copy until a time, even if no config lists it and it sends nothing.

        ``address``: where it listens; empty: where the links lead, or where it has said. Raises ``StelaeError`` if the
        address cannot be one of another node."""
        if self._links.learn_peer(node_id, address) or node_id in self._learned:
            self._needed(node_id, until_us)

    def close_idle(self, before_us: int) -> None:
        """Close the links to nodes that no config lists and that were last needed before a time."""
        for node_id in [node_id for node_id, needed_us in self._learned.items() if needed_us < before_us]:
            del self._learned[node_id]
            self._links.forget_peer(node_id)

    def _needed(self, node_id: NodeId, until_us: int) -> None:
        self._learned[node_id] = max(until_us, self._learned.get(node_id, 0))

    def _close(self, gone: set[NodeId]) -> None:
        for node_id in sorted(gone):
            if not any(node_id in members for members in self._members.values()):
                self._links.remove_peer(node_id)
