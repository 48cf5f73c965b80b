"""Everything that makes one node's metrics readable: the listener, the registry, and the file that says where."""

from __future__ import annotations

import logging

from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry

from stelae import __version__
from stelae.host.node import Node
from stelae.host.settings import NodeConfig
from stelae.machine.real import RealMachine
from stelae.telemetry.collector import NodeCollector
from stelae.telemetry.http_server import PATH, MetricsServer
from stelae.telemetry.settings import MetricsSettings
from stelae.telemetry.target import remove_target, write_target
from stelae.telemetry.view import NodeFigures

log = logging.getLogger(__name__)


class NodeMetricsServer:
    """Serves the metrics of one node from ``serve`` to ``close``; the listener is there from the start.

    Args:
        config: the node's.
        machine: what it runs on.
        role: ``master`` or ``tserver``.

    Raises:
        ConfigError: nothing can listen there.
    """

    def __init__(self, config: NodeConfig, machine: RealMachine, role: str) -> None:
        self._settings: MetricsSettings = config.extra.get("metrics") or MetricsSettings()
        self._directory = config.node.directory
        self._machine = machine
        self._role = role
        self._served = False
        self._server = MetricsServer(self._settings, machine.metrics) if self._settings.enabled else None

    @property
    def address(self) -> str:
        """``host:port``, or nothing where metrics are switched off."""
        return "" if self._server is None else self._server.address

    def serve(self, node: Node) -> None:
        """Begin to answer for a node that has started, and say where."""
        if self._server is None:
            remove_target(self._directory)
            return
        cluster_id = node.config.cluster_id
        about = (node.node_id, cluster_id, self._role, __version__)
        view = NodeFigures(node, self._machine.pools, about, self._settings.tablets_max)
        collector = NodeCollector(
            self._machine.figures, view.samples, now_us=self._machine.clock.monotonic_us, master=self._is_master
        )
        self._server.start(registry_of(collector))
        self._served = True
        labels = {"cluster": cluster_id, "node": node.node_id, "role": self._role}
        try:
            write_target(self._directory, self.address, labels)
        except OSError as error:
            log.warning("metrics target not written directory=%s reason=%s", self._directory, error)
        log.info("metrics served address=%s path=%s", self.address, PATH)

    def close(self) -> None:
        """Answer no more. Blocks for a fraction of a second."""
        if self._server is None:
            return
        if self._served:  # Else the directory may be another node's, which is why this one did not start.
            remove_target(self._directory)
        self._server.close()

    @property
    def _is_master(self) -> bool:
        return self._role == "master"


def registry_of(collector: NodeCollector) -> CollectorRegistry:
    """A registry of a node's metrics, and of those of its process and interpreter."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry
