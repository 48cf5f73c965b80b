"""Starts the services for the life of a node's replicas: the masters' actions, voting tombstones, the quarantine."""

from __future__ import annotations

from stelae.host.node import Node
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.lifecycle.tombstones import Tombstones
from stelae.server.tserver.actions import ActionService
from stelae.server.tserver.quarantine import QuarantineKeeper


class ReplicaLifecycle:
    """Serves the life of the replicas of one node. A ``Service`` (``stelae.spi.hooks``)."""

    def __init__(self, node: Node) -> None:
        assert isinstance(node.tablets, TabletLoader)
        self.manager = TabletManager(node, node.tablets)
        self._tombstones = Tombstones(node)
        self._actions = ActionService(node, self.manager)
        self._quarantine = QuarantineKeeper(node, self.manager)

    def start(self) -> None:
        """Register the handlers."""
        self._actions.start()
        self._tombstones.start()
        self._quarantine.start()

    def stop(self) -> None:
        """Stop the quarantine's timer. An operation under way ends by itself, or at the next start."""
        self._quarantine.stop()
