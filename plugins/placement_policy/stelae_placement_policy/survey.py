"""The survey: one pass over a snapshot, after which nodes and tablets are known by numbers.

Everything is taken in the order of ids, so that a plan does not depend on the order in which the snapshot lists it."""

from __future__ import annotations

import math

from stelae.spi.consensus import MemberType, Role
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.policy import NodeHealth, NodeView, PolicySnapshot, TabletView
from stelae_placement_policy.config import Config
from stelae_placement_policy.ledger import Ledger
from stelae_placement_policy.topology import Topology

_VOTER, _LEADER = MemberType.VOTER, Role.LEADER


class Tablet:
    """A tablet that has replicas: its view, the numbers of its members' nodes in the same order, its size in bytes
    (that of its largest replica: a copy under way counts in full), and its leader's node, or -1."""

    __slots__ = ("leader", "members", "size", "view")

    def __init__(self, view: TabletView, members: list[int], size: int, leader: int) -> None:
        self.view = view
        self.members = members
        self.size = size
        self.leader = leader

    @property
    def tablet_id(self) -> TabletId:
        """The id, by which tablets are ordered."""
        return self.view.tablet_id


class Survey:
    """A snapshot by numbers. ``whole`` tablets lack nothing and have nothing to spare; ``others`` are to be judged."""

    def __init__(self, snapshot: PolicySnapshot, config: Config) -> None:
        self.config = config
        self.ids: list[NodeId] = sorted(snapshot.nodes)
        self.numbers = {node_id: number for number, node_id in enumerate(self.ids)}
        self.nodes: list[NodeView | None] = [snapshot.nodes[node_id] for node_id in self.ids]
        """What is known of each node; ``None`` for one that only a tablet names."""
        self.live = [node is not None and node.health is NodeHealth.LIVE for node in self.nodes]
        self.whole: list[Tablet] = []
        self.others: list[Tablet] = []
        self.fresh: list[TabletView] = []
        for tablet_id in sorted(snapshot.tablets):
            self._read(snapshot.tablets[tablet_id])
        self.leaders = [0] * len(self.ids)
        self.leader_share = [0.0] * len(self.ids)
        """How many leaders a node would have if each tablet led a little from every voter."""
        self.hot = self._hot()
        self._enter()
        locations = ["" if node is None else node.location for node in self.nodes]
        open_nodes = [number for number, live in enumerate(self.live) if live]
        self.topology = Topology(locations, open_nodes, self.ledger.shares)

    def health(self, number: int) -> NodeHealth | None:
        """How the masters see a node; ``None``: they have never heard of it."""
        node = self.nodes[number]
        return None if node is None else node.health

    def location(self, number: int) -> str:
        """Where a node is, or empty."""
        node = self.nodes[number]
        return "" if node is None else node.location

    def led_of(self, number: int) -> float:
        """How much a node leads beside its share of all disk space; for comparing nodes."""
        return self.leaders[number] * self.ledger.inverse[number]

    def _read(self, view: TabletView) -> None:
        if not view.replicas:
            self.fresh.append(view)
            return
        whole = not view.change_pending and len(view.replicas) == view.replication_factor
        size, leader, members = 0, -1, []
        for replica in view.replicas:
            number = self.numbers.get(replica.node_id)
            if number is None:
                number = self._stranger(replica.node_id)
            members.append(number)
            if replica.size_bytes > size:
                size = replica.size_bytes
            if replica.member_type is not _VOTER or not replica.healthy or not self.live[number]:
                whole = False
            if replica.role is _LEADER:
                leader = number if leader < 0 else -2
        if len(set(members)) != len(members):
            leader = -2  # Nothing can be said of a config that names a node twice.
        tablet = Tablet(view, members, size, max(-1, leader))
        (self.whole if whole and leader >= 0 else self.others).append(tablet)

    def _stranger(self, node_id: NodeId) -> int:
        self.numbers[node_id] = len(self.ids)
        self.ids.append(node_id)
        self.nodes.append(None)
        self.live.append(False)
        return len(self.ids) - 1

    def _enter(self) -> None:
        """Fill the ledger. What a copy under way still lacks is taken off the node's room at once."""
        used, owed, count, total = self._amounts()
        free = [0 if node is None else max(0, node.free_bytes) for node in self.nodes]
        standing = [h in (NodeHealth.LIVE, NodeHealth.MAINTENANCE) for h in map(self.health, range(len(self.ids)))]
        reported = [u - o for u, o in zip(used, owed, strict=True)]
        self.ledger = Ledger(self.config, reported, free, standing)
        for number, amount in enumerate(used):
            self.ledger.count[number], self.ledger.bytes[number] = count[number], amount
            self.ledger.room[number] -= owed[number]
        coming = sum(max(0, view.replication_factor) for view in self.fresh)
        self.ledger.normalise(sum(count) + coming, total)
        for tablet in self.others:
            for replica, number in zip(tablet.view.replicas, tablet.members, strict=True):
                if replica.member_type is MemberType.PRE_VOTER:
                    self.ledger.arriving[number] += 1

    def _amounts(self) -> tuple[list[int], list[int], list[int], int]:
        used, owed, count = ([0] * len(self.ids) for _ in range(3))
        total, leaders, share = 0, self.leaders, self.leader_share
        for tablet in self.whole:
            size, members = tablet.size, tablet.members
            total += size * len(members)
            part = 1 / len(members)
            leaders[tablet.leader] += 1
            for replica, number in zip(tablet.view.replicas, members, strict=True):
                used[number] += size
                owed[number] += size - replica.size_bytes
                count[number] += 1
                share[number] += part
        for tablet in self.others:
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
