"""Counts elections, changes of leadership and failures of a node's replicas."""

from __future__ import annotations

from stelae.host.replica_ports import ReplicaObserver
from stelae.spi.consensus import Role, Status
from stelae.spi.ids import TabletId
from stelae.spi.services import Metrics


class CountingObserver:
    """A ``ReplicaObserver`` that counts, and passes every call on to another observer."""

    def __init__(self, metrics: Metrics, inner: ReplicaObserver) -> None:
        self._metrics = metrics
        self._inner = inner

    def status_changed(self, tablet_id: TabletId, before: Status, after: Status) -> None:
        """Count a change of role, term or leader."""
        metrics = self._metrics
        led, leads = before.role is Role.LEADER, after.role is Role.LEADER
        later = after.term > before.term
        if later and after.voted_for == after.node_id:
            metrics.count("elections_started")
        if leads and (later or not led):
            metrics.count("elections_won")
        if led and (later or not leads):
            metrics.count("leaderships_lost")
        if after.leader is not None and (later or after.leader != before.leader):
            metrics.count("leader_changes")
        self._inner.status_changed(tablet_id, before, after)

    def replica_failed(self, tablet_id: TabletId, before: str, reason: str) -> None:
        """Count a failed replica."""
        self._metrics.count("replicas_failed")
        self._inner.replica_failed(tablet_id, before, reason)
