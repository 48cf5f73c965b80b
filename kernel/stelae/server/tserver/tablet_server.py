"""The tablet server: its services, in the order in which they start."""

from __future__ import annotations

from stelae.host.node import Node
from stelae.server.tserver.busy_clients import BusyClients
from stelae.server.tserver.copy_operations import CopyOperations
from stelae.server.tserver.copy_service import CopyService
from stelae.server.tserver.heartbeats import HeartbeatSender
from stelae.server.tserver.leadership import LeadershipService
from stelae.server.tserver.load_meter import LoadMeter
from stelae.server.tserver.maintenance import Maintenance
from stelae.server.tserver.member_service import MemberService
from stelae.server.tserver.memory_limit import MemoryLimit
from stelae.server.tserver.recovery_service import RecoveryService
from stelae.server.tserver.replica_lifecycle import ReplicaLifecycle
from stelae.server.tserver.schema_changes import SchemaService
from stelae.server.tserver.tablet_service import TabletService
from stelae.spi.copy import CopySource, CopyTarget
from stelae.spi.hooks import Service


class TabletServer:
    """Starts and stops the services of a tablet server. A ``Service`` (``stelae.spi.hooks``)."""

    def __init__(self, node: Node) -> None:
        load = LoadMeter()  # The tablet service counts operations, and heartbeats report the rate.
        lifecycle = ReplicaLifecycle(node)
        served = CopyService(node)
        copies = lifecycle.copies

        def sides() -> list[CopySource | CopyTarget]:
            return [side for side in (served.source, copies.transport) if side is not None]

        self._services: list[Service] = [
            TabletService(node, load),
            SchemaService(node),
            lifecycle,
            LeadershipService(node),
            MemberService(node),
            RecoveryService(node),
            served,
            CopyOperations(node, copies, served),
            BusyClients(node.turns, load, sides),
            Maintenance(node),
            MemoryLimit(node),
            HeartbeatSender(node, load, copies),
        ]

    def start(self) -> None:
        """Start the services in their order."""
        for service in self._services:
            service.start()

    def stop(self) -> None:
        """Stop the services in the reverse order."""
        for service in reversed(self._services):
            service.stop()
