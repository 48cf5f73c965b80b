"""Starts the services that create, delete and clean up a node's replicas.

They are the masters' actions, the replicas that leaders create or copy, the tombstones that vote, the stages of copies,
and the quarantine."""

from __future__ import annotations

from stelae.host.node import Node
from stelae.lifecycle.first_schema import FirstSchemaCheck
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.lifecycle.tombstones import Tombstones
from stelae.lifecycle.witness_over_tombstone import WitnessOverTombstone
from stelae.server.tserver.actions import ActionService
from stelae.server.tserver.copy_target import CopyTargetService
from stelae.server.tserver.new_replicas import NewReplicas
from stelae.server.tserver.quarantine_keeper import QuarantineKeeper
from stelae.server.tserver.stage_keeper import StageKeeper


class ReplicaLifecycle:
    """Owns the lifecycle services of one node and their tablet manager. A ``Service`` (``stelae.spi.hooks``)."""

    def __init__(self, node: Node) -> None:
        assert isinstance(node.tablets, TabletLoader)
        self.manager = TabletManager(node, node.tablets)
        self._tombstones = Tombstones(node)
        self.copies = CopyTargetService(node, self.manager, self._tombstones)
        self._actions = ActionService(node, self.manager, self.copies)
        over_tombstones = WitnessOverTombstone(node, node.tablets, self.manager, self._tombstones)
        self._new_replicas = NewReplicas(node, self.manager, over_tombstones)
        self._first_schemas = FirstSchemaCheck(node)
        self._stages = StageKeeper(node, self.manager, self.copies)
        self._quarantine = QuarantineKeeper(node, self.manager)

    def start(self) -> None:
        """Register the handlers."""
        self._actions.start()
        self._new_replicas.start()
        self._first_schemas.start()
        self._tombstones.start()
        self.copies.start()
        self._stages.start()
        self._quarantine.start()

    def stop(self) -> None:
        """Stop the timers, and cancel copies. Another operation ends by itself, or after the next start."""
        self._quarantine.stop()
        self._stages.stop()
        self.copies.stop()
