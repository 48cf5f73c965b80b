"""The ports that all replicas of a node share."""

from dataclasses import dataclass
from typing import Protocol

from stelae.host.executor import ExecutorPorts
from stelae.host.heartbeats import HeartbeatService
from stelae.host.member_links import MemberLinks
from stelae.host.ports import BatcherFactory, BlockingPool, Turns
from stelae.spi.consensus import Status
from stelae.spi.ids import TabletId
from stelae.spi.services import Metrics


class ReplicaObserver(Protocol):
    """Gets the transitions of replicas. Its methods must not raise and must not block."""

    def status_changed(self, tablet_id: TabletId, before: Status, after: Status) -> None:
        """Called when role, term, leader, ``serving`` or a config has changed."""

    def replica_failed(self, tablet_id: TabletId, before: str, reason: str) -> None:
        """Called when a replica is FAILED. It serves no requests from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPorts(ExecutorPorts):
    """The ports that all replicas of a node share."""

    turns: Turns
    batcher: BatcherFactory
    heartbeats: HeartbeatService
    members: MemberLinks
    pool: BlockingPool
    metadata_pool: BlockingPool
    metrics: Metrics
    observer: ReplicaObserver
