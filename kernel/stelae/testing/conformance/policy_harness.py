"""What the checks of a policy use: plans with a guarded random source, and rounds of planning and applying."""

from __future__ import annotations

import random
from typing import Any

from stelae.spi.policy import Action, MasterPolicy, PolicySnapshot
from stelae.testing.conformance.policy_model import ModelCluster

ROUNDS_MAX = 120
"""Rounds after which a model of a few tablets has long come to rest, unless two plans undo each other."""


class GuardedRandom(random.Random):
    """A random source of which only ``random`` and ``getrandbits`` may be used: other draws differ between versions of
    Python, and a plan could not be replayed."""

    _FORBIDDEN = ("choice", "choices", "randint", "randrange", "sample", "shuffle", "uniform", "gauss", "betavariate")

    def __getattribute__(self, name: str) -> Any:
        if name in GuardedRandom._FORBIDDEN:
            raise AssertionError(f"a policy draws only random() and getrandbits(), not {name}()")
        return super().__getattribute__(name)


class PolicyHarness:
    """A policy under test, and its settings."""

    def __init__(self, policy: type[MasterPolicy], config: Any = None) -> None:
        self.policy = policy
        self.config = policy.Config() if config is None else config

    def plan(self, snapshot: PolicySnapshot, seed: int = 1) -> tuple[Action, ...]:
        """One plan."""
        actions = self.policy.plan(snapshot, self.config, GuardedRandom(seed))
        assert isinstance(actions, tuple), f"a plan is a tuple of actions, not {type(actions).__name__}"
        return actions

    def step(self, cluster: ModelCluster, seed: int = 1) -> tuple[Action, ...]:
        """Plan once and carry it out; no time passes."""
        actions = self.plan(cluster.snapshot(), seed)
        cluster.apply(actions)
        return actions

    def settle(self, cluster: ModelCluster, *, dropping: random.Random | None = None) -> int:
        """Plan, apply and let a round pass, until there is nothing to do and nothing under way; return the rounds.

        ``dropping``: draws which actions are lost on their way, a third of them."""
        for done in range(ROUNDS_MAX):
            actions = self.plan(cluster.snapshot(), seed=done)
            if not actions and not any(left > 0 for left in cluster.copying.values()):
                return done
            if not actions and _stuck(cluster):
                return done
            kept = [action for action in actions if dropping is None or dropping.random() < 0.66]
            if len(kept) < len(actions):
                kept = _whole_placements(kept, actions)
            cluster.apply(kept)
            cluster.settle()
        raise AssertionError(f"still changing after {ROUNDS_MAX} rounds: {[a.reason for a in actions[:3]]}")


def _stuck(cluster: ModelCluster) -> bool:
    """Whether no copy that is under way can end: its node is down, its tablet has no majority or a change pending."""
    before = (dict(cluster.copying), dict(cluster.tablets))
    for _ in range(cluster.copy_rounds):
        cluster.settle()
    return all(left <= 1 for left in cluster.copying.values()) and before[1] == cluster.tablets


def _whole_placements(kept: list[Action], actions: tuple[Action, ...]) -> list[Action]:
    """A new tablet's initial config is written once: all of its placements, or none."""
    lost = {a.tablet_id for a in actions if a.kind == "PLACE" and not any(a is k for k in kept)}
    return [action for action in kept if action.kind != "PLACE" or action.tablet_id not in lost]
