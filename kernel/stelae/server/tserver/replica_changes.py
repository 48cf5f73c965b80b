"""Finds the replicas of a node whose state has changed since the last check, as masters see it.

A node may have thousands of replicas, and nearly all of them are unchanged. For these only a few objects are compared
by identity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from stelae.host.node import Node
from stelae.host.replica import Replica
from stelae.host.replica_state import ReplicaState
from stelae.lifecycle.rows_copy import RowsCopy
from stelae.lifecycle.tablet_copy import TabletCopy
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.lifecycle.waiting_copies import WaitingCopy
from stelae.protocol.master_heartbeats import CopyHold, ReplicaStatus, ReportedDataState
from stelae.server.tserver.replica_stats import ReplicaStats
from stelae.server.tserver.stopped_replicas import leads
from stelae.spi.consensus import Role, Status
from stelae.spi.ids import OpId, TabletId

Copies: TypeAlias = Mapping[TabletId, TabletCopy | RowsCopy]
"""The copies to a node that are in progress."""


class _Marks(NamedTuple):
    """Objects of a replica that are replaced when its state changes. They are compared by identity only."""

    replica: Replica
    status: Status
    applied: OpId


class ReplicaChanges:
    """Remembers the replicas of one node as of the last check.

    Args:
        stats: sizes of replicas, and the unhealthy followers of leaders.
        copies: the copies to this node that are in progress.
        waiting: the copies of new replicas that wait for a slot, or for the end of a pause.
        lost: the tablets of which this node is a voter and has nothing. Leaders have asked for them. The value says
            whether their replicas were surely lost.
    """

    def __init__(
        self,
        node: Node,
        stats: ReplicaStats,
        copies: Callable[[], Copies],
        waiting: Callable[[], Mapping[TabletId, WaitingCopy]],
        lost: Callable[[], Mapping[TabletId, bool]],
    ) -> None:
        self._node = node
        self._stats = stats
        self._copies = copies
        self._waiting = waiting
        self._lost = lost
        self._reported: dict[TabletId, ReplicaStatus] = {}
        self._marks: dict[TabletId, _Marks] = {}

    def take(self) -> list[ReplicaStatus]:
        """Check all replicas; return each that is new, changed, or gone since the last check."""
        candidates = self._candidates()
        changed = [status for status in candidates if self._reported.get(status.tablet_id) != status]
        self._reported |= {status.tablet_id: status for status in changed}
        return changed + self._gone()

    def _candidates(self) -> list[ReplicaStatus]:
        """Return the replicas that may have changed. A tablet that failed to start is FAILED, even if a replica of it
        is listed as well."""
        failed, stale, marks = self._node.failed_tablets, self._stats.take_changed(), self._marks
        copying = self._copying()
        candidates = [_copying(tablet_id, copy) for tablet_id, copy in copying.items()]
        for tablet_id, replica in self._node.replicas.items():
            if tablet_id in copying:
                marks.pop(tablet_id, None)
                continue
            status, applied = replica.status, replica.applier.applied
            if (known := marks.get(tablet_id)) is not None and tablet_id not in stale:
                marked, old_status, old_applied = known
                if old_status is status and old_applied is applied and marked is replica and not replica.failure:
                    continue
            if tablet_id not in failed:
                marks[tablet_id] = _Marks(replica, status, applied)
                candidates.append(self._status_of(replica))
        for tablet_id in failed:
            marks.pop(tablet_id, None)  # So a replica that runs again is checked again.
            if tablet_id not in copying:
                candidates.append(self._not_running(tablet_id, ReportedDataState.FAILED))
        candidates += [_waiting(tablet_id, one) for tablet_id, one in self._expected().items()]
        candidates += [
            ReplicaStatus(
                tablet_id=tablet_id,
                data_state=ReportedDataState.FAILED if surely_lost else ReportedDataState.MISSING,
                op_id_lost=surely_lost,
            )
            for tablet_id, surely_lost in self._without_trace()
        ]
        return candidates

    def _expected(self) -> Mapping[TabletId, WaitingCopy]:
        """Return the copies that wait. Nothing of them is on this node."""
        if not (waiting := self._waiting()):
            return waiting
        present = {*self._node.replicas, *self._node.failed_tablets, *self._copies(), *self._lost()}
        return {tablet_id: one for tablet_id, one in waiting.items() if tablet_id not in present}

    def _without_trace(self) -> list[tuple[TabletId, bool]]:
        present = {*self._node.replicas, *self._node.failed_tablets, *self._copies()}
        return [(tablet_id, sure) for tablet_id, sure in self._lost().items() if tablet_id not in present]

    def _copying(self) -> dict[TabletId, TabletCopy | RowsCopy]:
        """Return the copies without a running replica beside them: one that lags is reported until it is set aside.

        One that has failed because it is damaged is being replaced, so it need not be replaced elsewhere."""
        replicas = self._node.replicas
        return {
            tablet: copy
            for tablet, copy in self._copies().items()
            if (replica := replicas.get(tablet)) is None or replica.failure
        }

    def _gone(self) -> list[ReplicaStatus]:
        present = {*self._node.replicas, *self._node.failed_tablets, *self._copies(), *self._lost(), *self._waiting()}
        gone = [tablet_id for tablet_id in self._reported if tablet_id not in present]
        for tablet_id in gone:
            del self._reported[tablet_id]
            self._marks.pop(tablet_id, None)
        return [self._not_running(tablet_id, ReportedDataState.DELETED) for tablet_id in gone]

    def _not_running(self, tablet_id: TabletId, data_state: ReportedDataState) -> ReplicaStatus:
        """Return the status of a replica that has failed or is gone.

        It says whether the replica lost its last op id, because such a replica can never vote again. Of one that has
        failed it says the committed config, if that can be read: masters delete what the members do not need."""
        source = self._node.tablets
        if not isinstance(source, TabletLoader):
            return ReplicaStatus(tablet_id=tablet_id, data_state=data_state)
        lost = tablet_id in source.unknown_op_ids
        config = source.failed_configs.get(tablet_id) if data_state is ReportedDataState.FAILED else None
        return ReplicaStatus(tablet_id=tablet_id, data_state=data_state, op_id_lost=lost, config=config)

    def _status_of(self, replica: Replica) -> ReplicaStatus:
        """Return the status of a replica as masters see it."""
        status, tablet_id = replica.status, replica.tablet_id
        return ReplicaStatus(
            tablet_id=tablet_id,
            data_state=ReportedDataState.FAILED if replica.state is ReplicaState.FAILED else ReportedDataState.READY,
            # A leader that has not committed an entry in its term serves no request, so it is reported as a follower.
            # So is one that has failed: its status stays as it was.
            role=Role.FOLLOWER if status.role is Role.LEADER and not leads(replica) else status.role,
            term=status.term,
            config=status.committed_config,
            schema_version=replica.applier.store.schema.version,
            size_bytes=self._stats.size_bytes.get(tablet_id, 0),
            unhealthy=self._stats.unhealthy.get(tablet_id, ()),
            change_pending=status.config.op_id != status.committed_config.op_id,
        )


def _copying(tablet_id: TabletId, copy: TabletCopy | RowsCopy) -> ReplicaStatus:
    """Return the status of a tablet that is being copied to this node."""
    progress = copy.control.latest
    return ReplicaStatus(
        tablet_id=tablet_id,
        data_state=ReportedDataState.COPYING,
        copied_bytes=progress.bytes_done,
        copy_bytes=progress.bytes_total,
        copy_hold=CopyHold.PAUSED if copy.control.paused else CopyHold.NONE,
    )


def _waiting(tablet_id: TabletId, one: WaitingCopy) -> ReplicaStatus:
    """Return the status of a tablet whose copy to this node waits."""
    hold = CopyHold.PAUSED if one.paused else CopyHold.WAITS
    return ReplicaStatus(tablet_id=tablet_id, data_state=ReportedDataState.COPYING, copy_hold=hold)
