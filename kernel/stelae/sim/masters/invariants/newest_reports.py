"""A master uses the newest report of each server, and the leader with the latest term."""

from __future__ import annotations

from typing import ClassVar

from stelae.protocol.master_heartbeats import Heartbeat, ReplicaStatus
from stelae.server.master.core.servers import Liveness
from stelae.sim.masters.invariants.base import MastersInvariant
from stelae.sim.masters.master import SimMaster
from stelae.sim.masters.tablet_groups import TabletGroups
from stelae.sim.masters.world import MastersWorld
from stelae.spi.consensus import Role
from stelae.spi.ids import NodeId, TabletId

Rank = tuple[int, int]
"""The incarnation of the server that reported a status, and the number of statuses reported before."""


class NewestReports(MastersInvariant):
    """The status that a master has of a replica never becomes older. Of two leaders, it uses that of the later term.

    Heartbeats may overtake each other, and heartbeats of a previous run of a server may arrive after its restart. A
    server that is down counts as leader until it counts as dead, and another replica may lead by then."""

    name: ClassVar[str] = "newest_reports"
    source: ClassVar[str] = "behaviours.md M4; source, appendix A, cases 3 and 4; contracts, heartbeats"

    def __init__(self, world: MastersWorld, groups: TabletGroups) -> None:
        super().__init__(world, groups)
        self._ranks: dict[int, Rank] = {}
        self._statuses: list[ReplicaStatus] = []  # References keep the ``id`` of each status unique.
        self._reported_ranks: dict[Heartbeat, tuple[Rank, ...]] = {}
        self._newest_ranks: dict[tuple[str, int, NodeId, TabletId], Rank] = {}

    def on_reported(self, heartbeat: Heartbeat) -> None:
        """Number the statuses of a heartbeat in the order in which their server first reports them."""
        self._reported_ranks[heartbeat] = tuple(
            self._rank(status, (int(heartbeat.incarnation, 16), len(self._statuses))) for status in _statuses(heartbeat)
        )

    def on_received(self, master: SimMaster, heartbeat: Heartbeat) -> None:
        """Check the statuses that the master has of the server, and the leaders of those tablets."""
        for status, rank in zip(_statuses(heartbeat), self._reported_ranks[heartbeat], strict=True):
            self._rank(status, rank)
        server = master.view().servers.get(heartbeat.node_id)
        for tablet_id, status in server.replicas.items() if server is not None else ():
            self._judge_age(master, heartbeat.node_id, status)
            self._judge_leader(master, tablet_id)

    def _rank(self, status: ReplicaStatus, rank: Rank) -> Rank:
        """Return the rank of a status. A status without one gets ``rank``."""
        if id(status) not in self._ranks:
            self._ranks[id(status)] = rank
            self._statuses.append(status)
        return self._ranks[id(status)]

    def _judge_age(self, master: SimMaster, node_id: NodeId, status: ReplicaStatus) -> None:
        replica = (master.endpoint.name, master.epoch, node_id, status.tablet_id)
        rank = self._ranks[id(status)]
        if rank < self._newest_ranks.get(replica, rank):
            self.fail(f"{master.endpoint.name} goes back to an older report of {node_id}: {status}")
        self._newest_ranks[replica] = rank

    def _judge_leader(self, master: SimMaster, tablet_id: TabletId) -> None:
        view = master.view()
        claims = [
            status.term
            for node_id, status in view.servers.holding(tablet_id)
            if status.role is Role.LEADER and view.servers.liveness(node_id, view.now_us) is not Liveness.DEAD
        ]
        if len(set(claims)) < 2:
            return
        self.world.coverage.hit("report.two_leaders")
        used = view.leader_of(tablet_id)
        if used is None or used[1].term != max(claims):
            self.fail(f"{master.endpoint.name} uses {used} as leader of {tablet_id}, but terms {claims} are reported")


def _statuses(heartbeat: Heartbeat) -> tuple[ReplicaStatus, ...]:
    return () if heartbeat.report is None else heartbeat.report.replicas
