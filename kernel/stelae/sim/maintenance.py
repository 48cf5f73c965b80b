"""The tablet server's maintenance service on a simulated node, with production's code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from stelae.host.hybrid_clock import HybridClock
from stelae.host.node import Node
from stelae.host.replica import Replica
from stelae.host.settings import MaintenanceSettings
from stelae.server.tserver.maintenance import Maintenance
from stelae.sim.process import Process
from stelae.sim.profile import Profile
from stelae.spi.ids import TabletId


@dataclass(frozen=True, slots=True)
class _Settings:
    maintenance: MaintenanceSettings


@dataclass(frozen=True, slots=True)
class _UpkeepNode:
    """The part of a node that maintenance needs."""

    config: _Settings
    turns: Process
    time: HybridClock
    replicas: dict[TabletId, Replica]


def maintenance_of(process: Process, clock: HybridClock, replica: Replica, profile: Profile) -> Maintenance:
    """Return the maintenance service for the one replica of a node, with the times and sizes of the profile."""
    settings = MaintenanceSettings(
        flush_bytes=profile.store.flush_bytes,
        flush_interval_ms=profile.store.flush_interval_ms,
        replica_memory_bytes_max=profile.store.memory_bytes_max,
        memory_bytes=2 * profile.store.flush_bytes,
        history_retention_s=profile.store.history_retention_s,
    )
    home = _UpkeepNode(_Settings(settings), process, clock, {replica.tablet_id: replica})
    return Maintenance(cast(Node, home))
