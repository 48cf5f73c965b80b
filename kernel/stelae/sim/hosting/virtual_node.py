"""A simulated node as the services of production see it: the parts of ``Node`` that they use.

Threads, files, network and clock are virtual. The services are those of production."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from stelae.host.assembly import Engines, RecoveredTablet
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.hybrid_clock import HybridClock
from stelae.host.log_writer import LogWriter
from stelae.host.peer_traffic import PeerTraffic
from stelae.host.ports import HardStates
from stelae.host.replica import Replica
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.sim.disk import VirtualDisk
from stelae.sim.hosting.node_messenger import NodeMessenger
from stelae.sim.hosting.virtual_threads import ThreadedPool
from stelae.sim.process import Process, VirtualPool
from stelae.sim.services import CoverageMetrics
from stelae.spi.ids import NodeId, TabletId


class Host(Protocol):
    """Starts the replica of a tablet that was created or copied (``Node.host``)."""

    def __call__(self, recovered: RecoveredTablet, *, campaign: bool = False) -> None: ...


@dataclass(frozen=True, slots=True)
class VirtualNodeEngine:
    """An engine of a node: its name, its class and its settings."""

    name: str
    engine: Any = None
    config: Any = None


@dataclass(frozen=True, slots=True)
class _Wire:
    deadline_ms_max: int


DEADLINE_MS_MAX = 4_000
"""The longest deadline of a call. The network loses messages, and a run has about a minute to come to rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualNodeConfig:
    """The part of ``NodeConfig`` that the services need. The node is no master, so it has no configured tablet."""

    consensus: VirtualNodeEngine
    wal: VirtualNodeEngine
    store: VirtualNodeEngine
    copy: VirtualNodeEngine | None
    extra: Mapping[str, Any] = field(default_factory=dict)
    wire: _Wire = _Wire(DEADLINE_MS_MAX)
    tablet: None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualNode:
    """The parts of ``Node`` that the services use, for one run of the process."""

    node_id: NodeId
    config: VirtualNodeConfig
    files: VirtualDisk
    layout: DirectoryLayout
    engines: Engines
    tablets: TabletLoader
    metadata_pool: VirtualPool
    scans: VirtualPool
    copies: ThreadedPool
    copy_snapshots: ThreadedPool
    copy_reads: ThreadedPool
    writer: LogWriter
    turns: Process
    time: HybridClock
    peers: PeerTraffic
    hard_states: HardStates
    messenger: NodeMessenger
    metrics: CoverageMetrics
    host: Host

    @property
    def replicas(self) -> Mapping[TabletId, Replica]:
        """The replicas of the node."""
        return self.peers.replicas

    @property
    def failed_tablets(self) -> Mapping[TabletId, str]:
        """The tablets that could not be recovered, and why."""
        return self.tablets.failed
