"""A cluster in memory for ``stelae policy simulate``. It applies every plan at once and without failures."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import msgspec

from stelae.spi.consensus import Role
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import MemberType
from stelae.spi.policy import Action, ActionKind, NodeHealth, NodeView, PolicySnapshot, ReplicaView, TabletView

DATA_CENTRES = 3
RACK_SERVERS = 20
DISK_BYTES = 2 << 40
TABLET_BYTES_MAX = 4 << 30


class PolicyCluster:
    """The servers and tablets of a simulated cluster. A copy is complete at the end of the plan that starts it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.nodes: dict[NodeId, NodeView] = {}
        self.tablets: dict[TabletId, TabletView] = {}
        self.sizes: dict[TabletId, int] = {}
        self._copying: list[tuple[TabletId, NodeId]] = []

    def join(self, count: int) -> None:
        """Add empty servers to the data centres in turn. Every fourth server has a disk of twice the size."""
        for _ in range(count):
            number = len(self.nodes)
            centre, place = number % DATA_CENTRES, number // DATA_CENTRES
            node_id = NodeId(f"{self.rng.getrandbits(128):032x}")
            self.nodes[node_id] = NodeView(
                node_id=node_id,
                health=NodeHealth.LIVE,
                location=f"/dc{centre}/rack{place // RACK_SERVERS}/host{number}",
                free_bytes=DISK_BYTES * (2 if number % 4 == 3 else 1),
            )

    def create(self, count: int, replication: int) -> None:
        """Add tablets without replicas."""
        for number in range(len(self.tablets), len(self.tablets) + count):
            tablet_id = TabletId(f"tablet-{number:06d}")
            self.tablets[tablet_id] = TabletView(
                tablet_id=tablet_id, replication_factor=replication, config_op_id=OpId(0, 0), replicas=()
            )

    def grow(self) -> None:
        """Give every tablet a random size. Half of them stay small."""
        for tablet in self.tablets.values():
            size = self.sizes[tablet.tablet_id] = int(TABLET_BYTES_MAX * self.rng.random() ** 2)
            replicas = tuple(msgspec.structs.replace(replica, size_bytes=size) for replica in tablet.replicas)
            self._replace(tablet, replicas=replicas)
            for replica in replicas:
                self._take_room(replica.node_id, size)

    def set_health(self, node_id: NodeId, health: NodeHealth) -> None:
        """Set the health of a server. If it is dead, a healthy voter of each of its tablets becomes the leader."""
        self.nodes[node_id] = msgspec.structs.replace(self.nodes[node_id], health=health)
        if health is not NodeHealth.DEAD:
            return
        for tablet in list(self.tablets.values()):
            if any(replica.node_id == node_id for replica in tablet.replicas):
                replicas = [
                    msgspec.structs.replace(r, healthy=False, role=Role.FOLLOWER) if r.node_id == node_id else r
                    for r in tablet.replicas
                ]
                if not any(replica.role is Role.LEADER for replica in replicas):
                    leader = next((index for index, replica in enumerate(replicas) if replica.healthy), 0)
                    replicas[leader] = msgspec.structs.replace(replicas[leader], role=Role.LEADER)
                self._replace(tablet, replicas=tuple(replicas))

    def snapshot(self) -> PolicySnapshot:
        """Return the snapshot that masters would give to the policy."""
        return PolicySnapshot(now_us=0, nodes=self.nodes, tablets=self.tablets)

    def apply(self, actions: Iterable[Action]) -> Counter[str]:
        """Apply a plan, complete its copies, and return the number of actions of each kind."""
        done: Counter[str] = Counter()
        placed: dict[TabletId, list[NodeId]] = {}
        for action in actions:
            done[action.kind.value] += 1
            tablet = self.tablets[action.tablet_id]
            if action.kind is ActionKind.PLACE:
                placed.setdefault(action.tablet_id, []).append(action.node_id)
            elif action.kind is ActionKind.ADD:
                self._add(tablet, action.node_id)
            elif action.kind is ActionKind.REMOVE:
                self._remove(tablet, action.node_id)
            elif action.kind is ActionKind.TRANSFER:
                self._lead(tablet, action.node_id)
        for tablet_id, node_ids in placed.items():
            self._place(self.tablets[tablet_id], node_ids)
        for tablet_id, node_id in self._copying:
            self._promote(self.tablets[tablet_id], node_id)
        self._copying.clear()
        return done

    def _place(self, tablet: TabletView, node_ids: list[NodeId]) -> None:
        replicas = tuple(
            ReplicaView(
                node_id=node_id, member_type=MemberType.VOTER, role=Role.FOLLOWER if at else Role.LEADER, healthy=True
            )
            for at, node_id in enumerate(node_ids)
        )
        self._replace(tablet, replicas=replicas, config_op_id=OpId(1, 1))

    def _add(self, tablet: TabletView, node_id: NodeId) -> None:
        member = ReplicaView(node_id=node_id, member_type=MemberType.PRE_VOTER, role=Role.LEARNER, healthy=True)
        self._reconfigure(tablet, (*tablet.replicas, member))
        self._copying.append((tablet.tablet_id, node_id))

    def _promote(self, tablet: TabletView, node_id: NodeId) -> None:
        size = self.sizes.get(tablet.tablet_id, 0)
        replicas = tuple(
            msgspec.structs.replace(r, member_type=MemberType.VOTER, role=Role.FOLLOWER, size_bytes=size)
            if r.node_id == node_id
            else r
            for r in tablet.replicas
        )
        self._reconfigure(tablet, replicas)
        self._take_room(node_id, size)

    def _remove(self, tablet: TabletView, node_id: NodeId) -> None:
        rest = []
        for replica in tablet.replicas:
            if replica.node_id == node_id:
                self._take_room(node_id, -replica.size_bytes)
            else:
                done = replica.replaces == node_id  # The move that was to remove it is complete.
                rest.append(msgspec.structs.replace(replica, replaces=None) if done else replica)
        self._reconfigure(tablet, tuple(rest))

    def _lead(self, tablet: TabletView, node_id: NodeId) -> None:
        replicas = tuple(
            msgspec.structs.replace(r, role=Role.LEADER if r.node_id == node_id else Role.FOLLOWER)
            for r in tablet.replicas
        )
        self._replace(tablet, replicas=replicas)

    def _take_room(self, node_id: NodeId, size: int) -> None:
        node = self.nodes[node_id]
        self.nodes[node_id] = msgspec.structs.replace(node, free_bytes=node.free_bytes - size)

    def _reconfigure(self, tablet: TabletView, replicas: tuple[ReplicaView, ...]) -> None:
        op_id = OpId(tablet.config_op_id.term, tablet.config_op_id.index + 1)
        self._replace(tablet, replicas=replicas, config_op_id=op_id)

    def _replace(self, tablet: TabletView, **fields: object) -> None:
        self.tablets[tablet.tablet_id] = msgspec.structs.replace(tablet, **fields)
