"""Serves one node's metrics: the listener, the registry, and the target file."""

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
from stelae.telemetry.node_samples import NodeSamples
from stelae.telemetry.settings import MetricsSettings
from stelae.telemetry.target_file import remove_target, write_target

log = logging.getLogger(__name__)


class NodeMetricsServer:
    """Serves the metrics of one node from ``serve`` to ``close``. It listens from its creation on.

    Args:
        config: the node's config.
        machine: the machine that the node runs on.
        role: ``master`` or ``tserver``.

    Raises:
        ConfigError: the address cannot be used.
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
        """``host:port``, or empty if metrics are disabled."""
        return "" if self._server is None else self._server.address

    def serve(self, node: Node) -> None:
        """Start answering for a node that has started, and write the target file."""
        if self._server is None:
            remove_target(self._directory)
            return
        cluster_id = node.config.cluster_id
        about = (node.node_id, cluster_id, self._role, __version__)
        samples = NodeSamples(node, self._machine.pools, about, self._settings.tablets_max)
        collector = NodeCollector(
            self._machine.figures, samples.samples, now_us=self._machine.clock.monotonic_us, master=self._is_master
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
        """Stop answering. Blocks for a fraction of a second."""
        if self._server is None:
            return
        if self._served:  # Otherwise the directory may belong to another node, and its target file stays.
            remove_target(self._directory)
        self._server.close()

    @property
    def _is_master(self) -> bool:
        return self._role == "master"


def registry_of(collector: NodeCollector) -> CollectorRegistry:
    """Return a registry of the metrics of a node, its process and its interpreter."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry
