"""The harness of the policy checks: plans with a guarded random source, and rounds of planning and applying."""

from __future__ import annotations

import random
from typing import Any

from stelae.spi.policy import Action, MasterPolicy, PolicySnapshot
from stelae.testing.conformance.policy_model import ModelCluster
from stelae.testing.guarded_random import GuardedRandom

ROUNDS_MAX = 120
"""The most rounds until a plan is empty. A model of a few tablets needs far fewer, unless two plans undo each other."""


class PolicyHarness:
    """Plans with the policy under test.

    Args:
        policy: the policy.
        config: its settings; its defaults if ``None``.
    """

    def __init__(self, policy: type[MasterPolicy], config: Any = None) -> None:
        self.policy = policy
        self.config = policy.Config() if config is None else config

    def plan(self, snapshot: PolicySnapshot, seed: int = 1) -> tuple[Action, ...]:
        """Return one plan, with a random source of this seed."""
        actions = plan_of(self.policy, self.config, snapshot, seed)
        assert isinstance(actions, tuple), f"a plan is a tuple of actions, not {type(actions).__name__}"
        return actions

    def step(self, cluster: ModelCluster, seed: int = 1) -> tuple[Action, ...]:
        """Plan once and carry the plan out; no time passes. Return the plan."""
        actions = self.plan(cluster.snapshot(), seed)
        cluster.apply(actions)
        return actions

    def converge(self, cluster: ModelCluster, *, dropping: random.Random | None = None) -> int:
        """Plan, apply and let a round pass, until a plan is empty and no copy is under way; return the rounds.

        Args:
            dropping: draws which actions are lost, a third of them; ``None``: none is lost.
        """
        for rounds in range(ROUNDS_MAX):
            actions = self.plan(cluster.snapshot(), seed=rounds)
            if not actions and not any(left > 0 for left in cluster.copying.values()):
                return rounds
            if not actions and _stuck(cluster):
                return rounds
            delivered = [action for action in actions if dropping is None or dropping.random() < 0.66]
            if len(delivered) < len(actions):
                delivered = _without_partial_placements(delivered, actions)
            cluster.apply(delivered)
            cluster.pass_round()
        raise AssertionError(f"still changing after {ROUNDS_MAX} rounds: {[a.reason for a in actions[:3]]}")


def plan_of(policy: type[MasterPolicy], config: Any, snapshot: PolicySnapshot, seed: int) -> tuple[Action, ...]:
    """Return the plan of a policy, with a random source of this seed."""
    return policy.plan(snapshot, config, GuardedRandom(seed))


def _stuck(cluster: ModelCluster) -> bool:
    """Say whether no copy can end: its node is down, or its tablet has no majority or a pending change."""
    before = (dict(cluster.copying), dict(cluster.tablets))
    for _ in range(cluster.copy_rounds):
        cluster.pass_round()
    return all(left <= 1 for left in cluster.copying.values()) and before[1] == cluster.tablets


def _without_partial_placements(delivered: list[Action], actions: tuple[Action, ...]) -> list[Action]:
    """Drop all placements of a new tablet if one was lost: its initial config is written once, as a whole."""
    lost = {a.tablet_id for a in actions if a.kind == "PLACE" and not any(a is k for k in delivered)}
    return [action for action in delivered if action.kind != "PLACE" or action.tablet_id not in lost]
