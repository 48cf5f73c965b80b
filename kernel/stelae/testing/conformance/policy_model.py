"""A model of a cluster for policies: it carries out actions as the kernel does, and refuses unsafe ones.

It keeps no data: a copy ends after a number of rounds, then its leader promotes it. An action that the kernel would
only drop is dropped here, too. An action that no policy may propose raises ``AssertionError`` with the broken rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from stelae.spi.consensus import Role
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import VOTING, MemberType
from stelae.spi.policy import Action, ActionKind, NodeHealth, NodeView, PolicySnapshot, ReplicaView, TabletView

GIB = 1 << 30
_LEARNER_ROLE, _VOTER_ROLE = Role.LEARNER, Role.FOLLOWER
_WITHOUT_ROWS = (MemberType.WITNESS, MemberType.PRE_WITNESS)


def node_name(number: int) -> NodeId:
    """Return the id of the node of that number."""
    return NodeId(f"{number:032x}")


def node_view(number: int, location: str = "", *, free_bytes: int = 100 * GIB) -> NodeView:
    """Return a live node with free space."""
    return NodeView(node_id=node_name(number), health=NodeHealth.LIVE, location=location, free_bytes=free_bytes)


class ModelCluster:
    """Nodes and tablets. Tests change them, and the actions of a policy.

    Args:
        nodes: the nodes at first.
        copy_rounds: rounds after which a copy ends.
    """

    def __init__(self, nodes: Iterable[NodeView], copy_rounds: int = 1) -> None:
        self.nodes = {node.node_id: node for node in nodes}
        self.tablets: dict[TabletId, TabletView] = {}
        self.copy_rounds = copy_rounds
        self.copying: dict[tuple[TabletId, NodeId], int] = {}
        """For each copy under way, the rounds until it ends."""
        self.added: list[tuple[TabletId, NodeId]] = []
        """Every replica that was added as a copy, in order."""

    # -- changes by a test ---------------------------------------------------------------------------

    def create(self, name: str, on: Iterable[int] = (), *, factor: int = 3, size: int = GIB) -> TabletView:
        """Create a tablet with voters on these nodes; the first one leads. Without nodes, a policy has to place it."""
        replicas = tuple(
            ReplicaView(
                node_id=node_name(number),
                member_type=MemberType.VOTER,
                role=Role.FOLLOWER if at else Role.LEADER,
                healthy=True,
                size_bytes=size,
            )
            for at, number in enumerate(on)
        )
        config = OpId(1, 1) if replicas else OpId(0, 0)
        view = TabletView(tablet_id=TabletId(name), replication_factor=factor, config_op_id=config, replicas=replicas)
        self.tablets[view.tablet_id] = view
        for replica in replicas:
            self._take_space(replica.node_id, size)
        return view

    def set_health(self, number: int, health: NodeHealth) -> None:
        """Set the health of a node. The tablets of a leader that is down elect another one."""
        node_id = node_name(number)
        self.nodes[node_id] = msgspec.structs.replace(self.nodes[node_id], health=health)
        answers = health in (NodeHealth.LIVE, NodeHealth.RETIRING)
        for tablet in list(self.tablets.values()):
            if any(replica.node_id == node_id for replica in tablet.replicas):
                self._replace(tablet, replicas=_set_healthy(tablet, node_id, answers))
                self.elect(tablet.tablet_id)

    def elect(self, tablet_id: TabletId) -> None:
        """Make a healthy voter the leader if the leader is down and a majority is up."""
        tablet = self.tablets[tablet_id]
        able = [r.node_id for r in tablet.replicas if r.healthy and r.member_type is MemberType.VOTER]
        if leader_of(tablet) not in able and able and has_majority(tablet):
            self._replace(tablet, replicas=_set_leader(tablet, able[0]))

    def change(self, name: str, **fields: object) -> None:
        """Change fields of a tablet's view."""
        self._replace(self.tablets[TabletId(name)], **fields)

    def snapshot(self) -> PolicySnapshot:
        """Return what the masters see now."""
        return PolicySnapshot(now_us=1, nodes=dict(self.nodes), tablets=dict(self.tablets))

    # -- changes by the kernel -----------------------------------------------------------------------

    def apply(self, actions: Iterable[Action]) -> None:
        """Carry out actions in their order. All are checked against the state before the first.

        Raises:
            AssertionError: an action is malformed or unsafe.
        """
        before = self.snapshot()
        changed: set[TabletId] = set()
        placed: dict[TabletId, list[NodeId]] = {}
        for action in actions:
            check_form(before, action)
            if action.kind is ActionKind.PLACE:
                placed.setdefault(action.tablet_id, []).append(action.node_id)
                continue
            assert action.tablet_id not in changed, f"two changes of one config in a plan: {action}"
            changed.add(action.tablet_id)
            check_safe(before, action)
            self._check_vote(action)
            _CARRY_OUT[action.kind](self, self.tablets[action.tablet_id], action)
        for tablet_id, node_ids in placed.items():
            self._place(before, tablet_id, node_ids)

    def pass_round(self) -> None:
        """Let a round pass: copies go on, and those that have ended are promoted."""
        for (tablet_id, node_id), left in list(self.copying.items()):
            if left > 1:
                self.copying[tablet_id, node_id] = left - 1
            elif self.nodes[node_id].health is NodeHealth.LIVE and has_majority(self.tablets[tablet_id]):
                del self.copying[tablet_id, node_id]
                self._promote(self.tablets[tablet_id], node_id)

    def _check_vote(self, action: Action) -> None:
        """Refuse a change that would let a member vote before its copy has ended."""
        copied = (action.tablet_id, action.node_id) not in self.copying
        votes = action.kind is ActionKind.CHANGE_ROLE and action.member_type in VOTING
        assert copied or not votes, f"a member would vote before it has the data: {action}"

    def _place(self, before: PolicySnapshot, tablet_id: TabletId, node_ids: list[NodeId]) -> None:
        view = before.tablets[tablet_id]
        assert not view.replicas, f"{tablet_id} already has replicas and was placed again"
        assert len(node_ids) == view.replication_factor, f"{tablet_id}: {len(node_ids)} initial members"
        assert len(set(node_ids)) == len(node_ids), f"{tablet_id}: two initial members on one node"
        for node_id in node_ids:
            _check_can_take(before.nodes[node_id], 0, f"{tablet_id} placed")
        self.create(tablet_id, [int(node_id, 16) for node_id in node_ids], factor=view.replication_factor, size=0)

    def _add(self, tablet: TabletView, action: Action) -> None:
        member = ReplicaView(node_id=action.node_id, member_type=MemberType.PRE_VOTER, role=Role.LEARNER, healthy=True)
        self._reconfigure(tablet, (*tablet.replicas, member))
        self.copying[tablet.tablet_id, action.node_id] = self.copy_rounds
        self.added.append((tablet.tablet_id, action.node_id))

    def _remove(self, tablet: TabletView, action: Action) -> None:
        gone = member_of(tablet, action.node_id)
        assert gone is not None
        if gone.role is Role.LEADER:  # A leader first transfers its leadership. A later action removes it.
            others = [r.node_id for r in tablet.replicas if r.healthy and r.member_type is MemberType.VOTER]
            successors = [node_id for node_id in others if node_id != action.node_id]
            self._replace(tablet, replicas=_set_leader(tablet, successors[0]))
            return
        self._reconfigure(tablet, _without(tablet, gone))
        self.copying.pop((tablet.tablet_id, action.node_id), None)
        self._take_space(action.node_id, -gone.size_bytes)

    def _change_role(self, tablet: TabletView, action: Action) -> None:
        assert action.member_type is not None
        replicas = tuple(
            msgspec.structs.replace(r, member_type=action.member_type) if r.node_id == action.node_id else r
            for r in tablet.replicas
        )
        self._reconfigure(tablet, replicas)

    def _transfer(self, tablet: TabletView, action: Action) -> None:
        self._replace(tablet, replicas=_set_leader(tablet, action.node_id))

    def _promote(self, tablet: TabletView, node_id: NodeId) -> None:
        size = max(replica.size_bytes for replica in tablet.replicas)
        replicas = tuple(
            msgspec.structs.replace(
                r, member_type=MemberType.VOTER, role=Role.FOLLOWER, size_bytes=size, healthy=True, copying=False
            )
            if r.node_id == node_id
            else r
            for r in tablet.replicas
        )
        self._reconfigure(tablet, replicas)
        self._take_space(node_id, size)

    def _take_space(self, node_id: NodeId, size: int) -> None:
        node = self.nodes[node_id]
        self.nodes[node_id] = msgspec.structs.replace(node, free_bytes=max(0, node.free_bytes - size))

    def _reconfigure(self, tablet: TabletView, replicas: tuple[ReplicaView, ...]) -> None:
        op_id = OpId(tablet.config_op_id.term, tablet.config_op_id.index + 1)
        self._replace(tablet, replicas=replicas, config_op_id=op_id)

    def _replace(self, tablet: TabletView, **fields: object) -> None:
        self.tablets[tablet.tablet_id] = msgspec.structs.replace(tablet, **fields)


_CARRY_OUT: dict[ActionKind, Callable[[ModelCluster, TabletView, Action], None]] = {
    ActionKind.ADD: ModelCluster._add,
    ActionKind.REMOVE: ModelCluster._remove,
    ActionKind.CHANGE_ROLE: ModelCluster._change_role,
    ActionKind.TRANSFER: ModelCluster._transfer,
}


# -- checks of actions -------------------------------------------------------------------------------


def check_form(before: PolicySnapshot, action: Action) -> None:
    """Refuse a malformed action: of an unknown kind, for an unknown tablet or node, without fence or reason."""
    assert isinstance(action.kind, ActionKind), f"not an ActionKind: {action.kind!r}"
    assert action.tablet_id in before.tablets, f"an unknown tablet: {action}"
    assert action.node_id in before.nodes, f"an unknown node: {action}"
    assert action.cas == before.tablets[action.tablet_id].config_op_id, f"the fence is not the config's op id: {action}"
    typed = action.kind in (ActionKind.ADD, ActionKind.CHANGE_ROLE)
    assert typed == (action.member_type is not None), (
        f"ADD and CHANGE_ROLE, and only they, have a member type: {action}"
    )
    assert any(letter.isdigit() for letter in action.reason), f"the reason contains no number: {action}"


def check_safe(before: PolicySnapshot, action: Action) -> None:
    """Refuse an action that could cost a tablet its majority or its data, or overfill a disk."""
    tablet, node = before.tablets[action.tablet_id], before.nodes[action.node_id]
    member = member_of(tablet, action.node_id)
    assert not tablet.change_pending, f"another change is pending: {action}"
    assert has_majority(tablet), f"no majority can commit the change: {action}"
    if action.kind is ActionKind.ADD:
        assert member is None, f"two replicas of one tablet on one node: {action}"
        assert action.node_id not in tablet.barred, f"the node is barred for ever: {action}"
        assert action.member_type is MemberType.PRE_VOTER, f"a new member would vote before it has the data: {action}"
        _check_can_take(node, max(replica.size_bytes for replica in tablet.replicas), str(action))
    elif action.kind is ActionKind.TRANSFER:
        voter = member is not None and member.healthy and member.member_type is MemberType.VOTER
        assert voter and node.health is not NodeHealth.DEAD, f"the successor cannot lead: {action}"
        assert leader_of(tablet) != action.node_id, f"the node leads already: {action}"
    else:
        assert member is not None, f"the node is not a member: {action}"
        if member.member_type in VOTING and action.member_type not in VOTING:
            _check_eviction(before, tablet, action)


def _check_eviction(before: PolicySnapshot, tablet: TabletView, action: Action) -> None:
    rest = [r for r in tablet.replicas if r.member_type in VOTING and r.node_id != action.node_id]
    healthy = [r for r in rest if r.healthy and not _dead(before, r.node_id)]
    assert len(healthy) >= len(rest) // 2 + 1, f"fewer than a majority of voters would be healthy: {action}"
    assert len(rest) >= tablet.replication_factor, f"evicted before a replacement votes: {action}"
    evicted = member_of(tablet, action.node_id)
    lacking = [r for r in tablet.replicas if r.member_type in _WITHOUT_ROWS and r.node_id != action.node_id]
    if lacking and evicted is not None and evicted.member_type is MemberType.VOTER:
        whole = [r for r in healthy if r.member_type is MemberType.VOTER]
        assert len(whole) >= len(rest) // 2 + 1, f"fewer than a majority of voters would have the rows: {action}"


def _dead(before: PolicySnapshot, node_id: NodeId) -> bool:
    node = before.nodes.get(node_id)
    return node is not None and node.health is NodeHealth.DEAD


def _check_can_take(node: NodeView, size: int, what: str) -> None:
    assert node.health is NodeHealth.LIVE, f"a replica on a node that is {node.health}: {what}"
    assert node.free_bytes > size or node.free_bytes >= size > 0, (
        f"a replica of {size} bytes on a disk with {node.free_bytes} bytes free: {what}"
    )


def has_majority(tablet: TabletView) -> bool:
    """Say whether enough voters are healthy for a change of config."""
    voters = [replica for replica in tablet.replicas if replica.member_type in VOTING]
    return sum(replica.healthy for replica in voters) >= len(voters) // 2 + 1


def member_of(tablet: TabletView, node_id: NodeId) -> ReplicaView | None:
    """Return the tablet's replica on a node, if any."""
    return next((replica for replica in tablet.replicas if replica.node_id == node_id), None)


def leader_of(tablet: TabletView) -> NodeId | None:
    """Return the node that leads the tablet, if any."""
    return next((r.node_id for r in tablet.replicas if r.role is Role.LEADER and r.healthy), None)


def _without(tablet: TabletView, gone: ReplicaView) -> tuple[ReplicaView, ...]:
    """Return the replicas without one. A replica that replaces it gets its marks.

    Otherwise a voter that goes makes room for one that is pinned."""
    rest = [replica for replica in tablet.replicas if replica is not gone]
    heir = next((replica for replica in rest if replica.replaces == gone.node_id), None)
    if heir is not None:
        place = gone.replaces if gone.replaces != heir.node_id else None
        rest[rest.index(heir)] = msgspec.structs.replace(heir, pinned=gone.pinned, replaces=place)
        return tuple(rest)
    freed = next((replica for replica in rest if replica.pinned), None)
    if freed is not None and gone.member_type in VOTING and not gone.pinned:
        rest[rest.index(freed)] = msgspec.structs.replace(freed, pinned=False)
    return tuple(rest)


def _set_healthy(tablet: TabletView, node_id: NodeId, answers: bool) -> tuple[ReplicaView, ...]:
    return tuple(
        msgspec.structs.replace(r, healthy=answers and not r.copying) if r.node_id == node_id else r
        for r in tablet.replicas
    )


def _set_leader(tablet: TabletView, node_id: NodeId) -> tuple[ReplicaView, ...]:
    return tuple(
        msgspec.structs.replace(r, role=Role.LEADER if r.node_id == node_id else _role(r)) for r in tablet.replicas
    )


def _role(replica: ReplicaView) -> Role:
    return _VOTER_ROLE if replica.member_type in VOTING else _LEARNER_ROLE
