"""Which replicas of a node stand otherwise than at the last look, in the words in which masters are told.

A node may have thousands, nearly all of which nothing has happened to: of those only a few marks are read."""

from __future__ import annotations

from typing import NamedTuple

from stelae.host.node import Node
from stelae.host.replica import Replica, ReplicaState
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.protocol.master_heartbeats import ReplicaStatus, ReportedDataState
from stelae.server.tserver.replica_stats import ReplicaStats
from stelae.spi.consensus import Role, Status
from stelae.spi.ids import OpId, TabletId


class _Marks(NamedTuple):
    """What is another object as soon as anything has happened to a replica; only looked at by identity."""

    replica: Replica
    status: Status
    applied: OpId

    def still_hold(self, replica: Replica) -> bool:
        return (
            self.status is replica.status
            and self.applied is replica.applier.applied
            and self.replica is replica
            and not replica.failure
        )


class ReplicaChanges:
    """The replicas of one node, as they were at the last look.

    Args:
        watch: knows sizes, and whom leaders do not hear.
    """

    def __init__(self, node: Node, watch: ReplicaStats) -> None:
        self._node = node
        self._watch = watch
        self._seen: dict[TabletId, ReplicaStatus] = {}
        self._marks: dict[TabletId, _Marks] = {}

    def take(self) -> list[ReplicaStatus]:
        """Look; return every replica that is new, otherwise than at the last look, or gone."""
        found = self._looked_at()
        changed = [status for status in found if self._seen.get(status.tablet_id) != status]
        self._seen |= {status.tablet_id: status for status in changed}
        return changed + self._gone()

    def _looked_at(self) -> list[ReplicaStatus]:
        """All that may have changed; what has failed is that, whatever else it is."""
        failed, stale, marks = self._node.failed_tablets, self._watch.take_changed(), self._marks
        found = []
        for tablet_id, replica in self._node.replicas.items():
            known = marks.get(tablet_id)
            if (known is None or not known.still_hold(replica) or tablet_id in stale) and tablet_id not in failed:
                marks[tablet_id] = _Marks(replica, replica.status, replica.applier.applied)
                found.append(self._status_of(replica))
        for tablet_id in failed:
            marks.pop(tablet_id, None)  # Once it is up again, it is looked at again.
            found.append(self._not_up(tablet_id, ReportedDataState.FAILED))
        return found

    def _gone(self) -> list[ReplicaStatus]:
        replicas, failed = self._node.replicas, self._node.failed_tablets
        gone = [tablet_id for tablet_id in self._seen if tablet_id not in replicas and tablet_id not in failed]
        for tablet_id in gone:
            del self._seen[tablet_id]
            self._marks.pop(tablet_id, None)
        return [self._not_up(tablet_id, ReportedDataState.DELETED) for tablet_id in gone]

    def _not_up(self, tablet_id: TabletId, data_state: ReportedDataState) -> ReplicaStatus:
        """A replica that has failed or is gone: whether it still knows its last op id decides what it may ever be."""
        source = self._node.tablets
        lost = isinstance(source, TabletLoader) and tablet_id in source.unknown_op_ids
        return ReplicaStatus(tablet_id=tablet_id, data_state=data_state, op_id_lost=lost)

    def _status_of(self, replica: Replica) -> ReplicaStatus:
        """How a replica stands, as masters see it."""
        status, tablet_id = replica.status, replica.tablet_id
        return ReplicaStatus(
            tablet_id=tablet_id,
            data_state=ReportedDataState.FAILED if replica.state is ReplicaState.FAILED else ReportedDataState.READY,
            # A leader that has yet to commit in its term serves nobody: it is reported as one once it does.
            role=Role.FOLLOWER if status.role is Role.LEADER and not status.serving else status.role,
            term=status.term,
            config=status.committed_config,
            schema_version=replica.applier.store.schema.version,
            size_bytes=self._watch.size_bytes.get(tablet_id, 0),
            unhealthy=self._watch.unhealthy.get(tablet_id, ()),
            change_pending=status.config.op_id != status.committed_config.op_id,
        )
