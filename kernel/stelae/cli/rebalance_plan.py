"""What a placement policy would still change in a cluster, how many bytes that copies, and how long it may take."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stelae.cli.policy_cluster import PolicyCluster
from stelae.cli.policy_explain import unmet_needs
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import PROMOTED
from stelae.spi.policy import Action, ActionKind, MasterPolicy, PolicySnapshot, TabletView

PLANS_MAX = 500
"""The most plans that are looked ahead."""

TABLETS_MAX = 300_000
"""The most tablets that are planned for in all plans together: a few seconds of work. At least two plans are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """What is left to do until the policy would change nothing."""

    now: tuple[Action, ...]  #: The plan for the cluster as it is.
    moving: tuple[TabletId, ...]  #: Tablets whose members are changing already.
    plans: int  #: How many plans follow each other, the present one included, as far as was looked ahead.
    to_the_end: bool = True  #: Whether it was looked ahead until no plan changes anything. Otherwise more follows.
    counts: Mapping[ActionKind, int]  #: The actions of all of them.
    bytes_to: Mapping[NodeId, int]  #: The bytes that all of them, and the changes under way, copy to each server.
    #: What tablets lack that the present plan cannot give them, by tablet id.
    waiting: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether nothing changes, and nothing would."""
        return not self.now and not self.moving

    @property
    def copies(self) -> int:
        """The number of replicas that are still to be copied by later plans."""
        return self.counts.get(ActionKind.ADD, 0)

    @property
    def bytes_left(self) -> int:
        """The bytes of all copies."""
        return sum(self.bytes_to.values())

    def time_s(self, bytes_per_s: Mapping[NodeId, int], otherwise: int) -> float:
        """Return the time of all copies in seconds, if each server gets bytes at its rate: the slowest one decides.

        Args:
            bytes_per_s: the limit of each server; 0, or none, if it has no limit.
            otherwise: the assumed rate of servers without a limit, at least 1."""
        return max((size / (bytes_per_s.get(node) or otherwise) for node, size in self.bytes_to.items()), default=0.0)


def rebalance_of(policy: type[MasterPolicy], config: Any, snapshot: PolicySnapshot, seed: int) -> Rebalance:
    """Return what is left to do. Plans are applied to a copy of the cluster, each as if it was complete at once.

    The masters draw other random numbers, so they may choose other servers of the same kind."""
    rng = random.Random(seed)
    now = policy.plan(snapshot, config, rng)
    moving = tuple(sorted(tablet_id for tablet_id, view in snapshot.tablets.items() if _is_changing(view)))
    bytes_to: Counter[NodeId] = Counter()
    for tablet_id in moving:
        view = snapshot.tablets[tablet_id]
        bytes_to.update(
            {one.node_id: max(_size(view) - one.size_bytes, 0) for one in view.replicas if one.member_type in PROMOTED}
        )
    counts: Counter[ActionKind] = Counter()
    ahead = _Ahead(snapshot)
    plans, plan = 0, now
    plans_max = min(PLANS_MAX, max(2, TABLETS_MAX // max(1, len(snapshot.tablets))))
    while plan and plans < plans_max:
        plans += 1
        counts.update(action.kind for action in plan)
        for action in plan:
            if action.kind is ActionKind.ADD:
                bytes_to[action.node_id] += _size(snapshot.tablets[action.tablet_id])
        plan = ahead.next_plan(policy, config, plan, rng)
    ended = not plan and ahead.knows_all
    waiting = {tablet_id: why for tablet_id, why in unmet_needs(snapshot, now).items() if tablet_id not in moving}
    return Rebalance(
        now=now, moving=moving, plans=plans, to_the_end=ended, counts=counts, bytes_to=dict(bytes_to), waiting=waiting
    )


class _Ahead:
    """A copy of a cluster to which plans are applied."""

    def __init__(self, snapshot: PolicySnapshot) -> None:
        self._cluster = PolicyCluster(0)
        self._cluster.nodes = dict(snapshot.nodes)
        self._cluster.tablets = dict(snapshot.tablets)
        self._cluster.sizes = {tablet_id: _size(view) for tablet_id, view in snapshot.tablets.items()}
        named = {one.node_id for view in snapshot.tablets.values() for one in view.replicas}
        self.knows_all = named <= snapshot.nodes.keys()  #: Every member is on a server of the snapshot.

    def next_plan(
        self, policy: type[MasterPolicy], config: Any, plan: Sequence[Action], rng: random.Random
    ) -> tuple[Action, ...]:
        """Apply a plan and return the next one; nothing if the cluster has members on unknown servers."""
        if not self.knows_all:
            return ()
        self._cluster.apply(plan)
        return policy.plan(self._cluster.snapshot(), config, rng)


def _is_changing(view: TabletView) -> bool:
    return view.change_pending or any(one.member_type in PROMOTED or one.copying for one in view.replicas)


def _size(view: TabletView) -> int:
    return max((one.size_bytes for one in view.replicas), default=0)
