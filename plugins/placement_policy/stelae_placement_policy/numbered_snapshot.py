"""A snapshot of the cluster with numbers for nodes, and its tablets sorted into complete, incomplete and unplaced ones.

Everything is read in the order of ids, so a plan does not depend on the order in the snapshot."""

from __future__ import annotations

import math

from stelae.spi.consensus import Role
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import MemberType
from stelae.spi.policy import NodeHealth, NodeView, PolicySnapshot, TabletView
from stelae_placement_policy.config import PlacementConfig
from stelae_placement_policy.ledger import Ledger
from stelae_placement_policy.topology import Topology

_VOTER, _LEADER = MemberType.VOTER, Role.LEADER


class NumberedTablet:
    """A tablet with replicas.

    Attributes:
        view: the tablet in the snapshot.
        members: the numbers of its members' nodes, in the order of the view.
        size: bytes of its largest replica, because a copy under way counts in full.
        leader: the number of its leader's node, or -1.
        closed: the nodes that cannot get a replica: those of its members, and those that are barred.
        shunned: those that get one only if no other node can: ``closed``, and those where a copy has just failed.
    """

    __slots__ = ("closed", "leader", "members", "shunned", "size", "view")

    def __init__(
        self, view: TabletView, members: list[int], size: int, leader: int, barred: list[int], avoided: list[int]
    ) -> None:
        self.view = view
        self.closed = [*members, *barred] if barred else members
        self.shunned = [*self.closed, *avoided] if avoided else self.closed
        self.members = members
        self.size = size
        self.leader = leader

    @property
    def tablet_id(self) -> TabletId:
        """The tablet's id, by which tablets are ordered."""
        return self.view.tablet_id


class NumberedSnapshot:
    """A snapshot whose nodes and tablets are known by numbers."""

    def __init__(self, snapshot: PolicySnapshot, config: PlacementConfig) -> None:
        self.config = config
        self.ids: list[NodeId] = sorted(snapshot.nodes)
        self.numbers = {node_id: number for number, node_id in enumerate(self.ids)}
        self.nodes: list[NodeView | None] = [snapshot.nodes[node_id] for node_id in self.ids]
        """The view of each node; ``None`` for a node that only a tablet names."""
        self.live = [node is not None and node.health is NodeHealth.LIVE for node in self.nodes]
        #: Tablets with a leader and exactly the wanted voters, all healthy and on live nodes.
        self.complete: list[NumberedTablet] = []
        #: All other tablets with replicas.
        self.incomplete: list[NumberedTablet] = []
        #: Tablets without replicas.
        self.unplaced: list[TabletView] = []
        for tablet_id in sorted(snapshot.tablets):
            self._read(snapshot.tablets[tablet_id])
        self.leaders = [0] * len(self.ids)
        self.leader_share = [0.0] * len(self.ids)
        """Number of leaders that each node would have if every voter led an equal part of its tablet."""
        self.hot = self._hot()
        self._enter()
        locations = ["" if node is None else node.location for node in self.nodes]
        open_nodes = [number for number, live in enumerate(self.live) if live]
        self.topology = Topology(locations, open_nodes, self.ledger.shares)

    def health(self, number: int) -> NodeHealth | None:
        """Return the health of a node; ``None``: the masters have never heard from it."""
        node = self.nodes[number]
        return None if node is None else node.health

    def location(self, number: int) -> str:
        """Return the location of a node, or an empty text."""
        node = self.nodes[number]
        return "" if node is None else node.location

    def led_of(self, number: int) -> float:
        """Return a node's number of leaders in relation to its share of all disk space, for comparisons."""
        return self.leaders[number] * self.ledger.inverse[number]

    def _read(self, view: TabletView) -> None:
        if not view.replicas:
            self.unplaced.append(view)
            return
        complete = not view.change_pending and len(view.replicas) == view.replication_factor
        size, leader, members = 0, -1, []
        for replica in view.replicas:
            number = self.numbers.get(replica.node_id)
            if number is None:
                number = self._add_unknown_node(replica.node_id)
            members.append(number)
            if replica.size_bytes > size:
                size = replica.size_bytes
            steady = replica.member_type is _VOTER and replica.healthy
            if not steady or replica.pinned or replica.replaces is not None or not self.live[number]:
                complete = False
            if replica.role is _LEADER:
                leader = number if leader < 0 else -2
        if len(set(members)) != len(members):
            leader = -2  # A config that names a node twice cannot be judged.
        barred = [self.numbers[node_id] for node_id in view.barred if node_id in self.numbers]
        avoided = [self.numbers[node_id] for node_id in view.avoided if node_id in self.numbers]
        tablet = NumberedTablet(view, members, size, max(-1, leader), barred, avoided)
        (self.complete if complete and leader >= 0 else self.incomplete).append(tablet)

    def _add_unknown_node(self, node_id: NodeId) -> int:
        self.numbers[node_id] = len(self.ids)
        self.ids.append(node_id)
        self.nodes.append(None)
        self.live.append(False)
        return len(self.ids) - 1

    def _enter(self) -> None:
        """Fill the ledger. The bytes that a copy under way still needs are subtracted from the node's room at once."""
        used, owed, count, total = self._amounts()
        free = [0 if node is None else max(0, node.free_bytes) for node in self.nodes]
        staying = [h in (NodeHealth.LIVE, NodeHealth.MAINTENANCE) for h in map(self.health, range(len(self.ids)))]
        reported = [u - o for u, o in zip(used, owed, strict=True)]
        self.ledger = Ledger(self.config, reported, free, staying)
        for number, amount in enumerate(used):
            self.ledger.count[number], self.ledger.bytes[number] = count[number], amount
            self.ledger.room[number] -= owed[number]
        coming = sum(max(0, view.replication_factor) for view in self.unplaced)
        self.ledger.normalise(sum(count) + coming, total)
        for tablet in self.incomplete:
            for replica, number in zip(tablet.view.replicas, tablet.members, strict=True):
                if replica.member_type is MemberType.PRE_VOTER:
                    self.ledger.arrive(number, tablet.size)

    def _amounts(self) -> tuple[list[int], list[int], list[int], int]:
        used, owed, count = ([0] * len(self.ids) for _ in range(3))
        total, leaders, share = 0, self.leaders, self.leader_share
        for tablet in self.complete:
            size, members = tablet.size, tablet.members
            total += size * len(members)
            part = 1 / len(members)
            leaders[tablet.leader] += 1
            for replica, number in zip(tablet.view.replicas, members, strict=True):
                used[number] += size
                owed[number] += size - replica.size_bytes
                count[number] += 1
                share[number] += part
        for tablet in self.incomplete:
            total += tablet.size * len(tablet.members)
            if tablet.leader >= 0:
                leaders[tablet.leader] += 1
            for replica, number in zip(tablet.view.replicas, tablet.members, strict=True):
                used[number] += tablet.size
                owed[number] += tablet.size - max(0, replica.size_bytes)
                count[number] += 1
                share[number] += 1 / len(tablet.members)
        return used, owed, count, total

    def _hot(self) -> list[bool]:
        loads = [0.0 if node is None else node.load_ops_per_s for node in self.nodes]
        loads = [load if math.isfinite(load) and load > 0 else 0.0 for load in loads]
        known = [load for load, live in zip(loads, self.live, strict=True) if live]
        limit = self.config.hot_load_ratio * math.fsum(known) / max(1, len(known))
        return [load > limit > 0 for load in loads]
