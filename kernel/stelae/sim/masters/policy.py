"""The placement policy of the simulated masters.

It places replicas on the least loaded servers and re-replicates by 3-4-3. Sometimes it proposes nonsense, which the
kernel must refuse (``durability.md`` rule 30)."""

from __future__ import annotations

import random
from collections import Counter

from stelae.sim.draw import chance, pick
from stelae.spi.consensus import Role
from stelae.spi.ids import NodeId
from stelae.spi.members import MemberType
from stelae.spi.policy import Action, ActionKind, NodeHealth, PolicySnapshot, TabletView

NONSENSE = 0.05
MOVES = 0.1


def plan(snapshot: PolicySnapshot, rng: random.Random) -> tuple[Action, ...]:
    """Return the actions for a snapshot."""
    live = [n for n, view in snapshot.nodes.items() if view.health is NodeHealth.LIVE]
    load = Counter(dict.fromkeys(live, 0))
    for tablet in snapshot.tablets.values():
        load.update(replica.node_id for replica in tablet.replicas if replica.node_id in live)
    actions: list[Action] = []
    for tablet in snapshot.tablets.values():
        if chance(rng, NONSENSE) and snapshot.nodes:
            actions.append(_nonsense(tablet, pick(rng, list(snapshot.nodes)), rng))
        actions += _plan_tablet(snapshot, tablet, load, rng)
    return tuple(actions)


def _plan_tablet(
    snapshot: PolicySnapshot, tablet: TabletView, load: Counter[NodeId], rng: random.Random
) -> list[Action]:
    members = {replica.node_id for replica in tablet.replicas}
    free = sorted((n for n in load if n not in members), key=lambda n: (load[n], n))
    if not tablet.replicas:
        chosen = free[: tablet.replication_factor]
        load.update(chosen)
        return [_action(ActionKind.PLACE, tablet, node_id) for node_id in chosen]
    if tablet.change_pending:
        return []
    voters = [r for r in tablet.replicas if r.member_type is MemberType.VOTER]
    healthy = [r for r in voters if r.healthy]
    joining = [r for r in tablet.replicas if r.member_type is MemberType.PRE_VOTER]
    dead = [r for r in voters if not r.healthy and snapshot.nodes[r.node_id].health is NodeHealth.DEAD]
    if dead and len(voters) <= tablet.replication_factor and not joining and free:
        return [_action(ActionKind.ADD, tablet, free[0])]
    if len(voters) > tablet.replication_factor and not joining:
        spare = dead or [r for r in voters if r.role is not Role.LEADER]
        return [_action(ActionKind.REMOVE, tablet, spare[0].node_id)]
    if len(healthy) == tablet.replication_factor and free and not joining and chance(rng, MOVES):
        return [_action(ActionKind.ADD, tablet, free[0])]
    return []


def _nonsense(tablet: TabletView, node_id: NodeId, rng: random.Random) -> Action:
    kind = pick(rng, (ActionKind.REMOVE, ActionKind.ADD, ActionKind.TRANSFER, ActionKind.PLACE))
    return _action(kind, tablet, node_id)


def _action(kind: ActionKind, tablet: TabletView, node_id: NodeId) -> Action:
    member_type = MemberType.PRE_VOTER if kind is ActionKind.ADD else None
    return Action(
        kind=kind,
        tablet_id=tablet.tablet_id,
        node_id=node_id,
        cas=tablet.config_op_id,
        reason="drawn",
        member_type=member_type,
    )
