"""All that makes a node a tablet server: its parts, in the order in which they start."""

from __future__ import annotations

from stelae.host.node import Node
from stelae.server.tserver.heartbeats import MasterReports
from stelae.server.tserver.leadership import LeadershipService
from stelae.server.tserver.load import LoadMeter
from stelae.server.tserver.maintenance import Maintenance
from stelae.server.tserver.memory_limit import MemoryLimit
from stelae.server.tserver.replica_lifecycle import ReplicaLifecycle
from stelae.server.tserver.schemas import SchemaService
from stelae.server.tserver.service import TabletService
from stelae.spi.hooks import Service


class TabletServer:
    """A ``Service`` (``stelae.spi.hooks``): what clients ask of it is part of what it reports to the masters."""

    def __init__(self, node: Node) -> None:
        load = LoadMeter()
        self._parts: list[Service] = [
            TabletService(node, load),
            SchemaService(node),
            ReplicaLifecycle(node),
            LeadershipService(node),
            Maintenance(node),
            MemoryLimit(node),
            MasterReports(node, load),
        ]

    def start(self) -> None:
        """Start the parts in their order."""
        for part in self._parts:
            part.start()

    def stop(self) -> None:
        """Stop the parts, the last one first."""
        for part in reversed(self._parts):
            part.stop()
