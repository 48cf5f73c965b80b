"""Keeps links to the members of the tablets of a node: to all of them, and to no node that is none any more."""

from typing import Protocol

from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import TabletConfig


class PeerLinks(Protocol):
    """The part of the messenger that this module uses."""

    def add_peer(self, node_id: NodeId, address: str) -> None:
        """Keep links to a node. If there are links already, change their address."""

    def remove_peer(self, node_id: NodeId) -> None:
        """Close the links to a node."""


class MemberLinks:
    """The links of one node. A config of any of its replicas can open one, change its address, or close it."""

    def __init__(self, node_id: NodeId, links: PeerLinks) -> None:
        self._node_id = node_id
        self._links = links
        self._members: dict[TabletId, dict[NodeId, str]] = {}

    def config_changed(self, tablet_id: TabletId, config: TabletConfig) -> None:
        """Note the config in force of a replica of this node."""
        before = self._members.get(tablet_id, {})
        now = {m.node_id: m.address for m in config.members if m.node_id != self._node_id}
        self._members[tablet_id] = now
        for node_id, address in now.items():
            if before.get(node_id) != address:
                self._links.add_peer(node_id, address)
        self._close(set(before) - set(now))

    def forget(self, tablet_id: TabletId) -> None:
        """Note that the node has no replica of a tablet any more."""
        self._close(set(self._members.pop(tablet_id, {})))

    def _close(self, gone: set[NodeId]) -> None:
        for node_id in sorted(gone):
            if not any(node_id in members for members in self._members.values()):
                self._links.remove_peer(node_id)
