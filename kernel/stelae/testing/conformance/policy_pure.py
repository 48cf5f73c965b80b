"""Checks of a policy: it is a function, has a plan for everything, and says what may be said."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given, settings

from stelae.spi.policy import PolicySnapshot
from stelae.testing.conformance import policy_drawn
from stelae.testing.conformance.policy_drawn import sane_clusters, wild_snapshots
from stelae.testing.conformance.policy_harness import PolicyHarness
from stelae.testing.conformance.policy_model import ModelCluster, check_form


def in_other_order(snapshot: PolicySnapshot, rng: random.Random) -> PolicySnapshot:
    """The same snapshot, its mappings filled in another order."""
    nodes = sorted(snapshot.nodes.items(), key=lambda item: (rng.random(), item[0]))
    tablets = sorted(snapshot.tablets.items(), key=lambda item: (rng.random(), item[0]))
    return msgspec.structs.replace(snapshot, nodes=dict(nodes), tablets=dict(tablets))


class PureChecks:
    """Purity and form, whatever the policy."""

    def test_equal_snapshots_and_random_sources_give_equal_plans(self, harness: PolicyHarness) -> None:
        @policy_drawn.EXAMPLES
        @given(sane_clusters())
        def plans_are_equal(cluster: ModelCluster) -> None:
            snapshot = cluster.snapshot()
            first = harness.plan(snapshot, seed=7)
            for seed in range(2):
                assert harness.plan(in_other_order(snapshot, random.Random(seed)), seed=7) == first

        plans_are_equal()

    def test_a_plan_leaves_its_snapshot_as_it_was(self, harness: PolicyHarness) -> None:
        @policy_drawn.EXAMPLES
        @given(sane_clusters())
        def is_left(cluster: ModelCluster) -> None:
            snapshot = cluster.snapshot()
            harness.plan(snapshot)
            assert snapshot == cluster.snapshot()
            assert (list(snapshot.nodes), list(snapshot.tablets)) == (list(cluster.nodes), list(cluster.tablets))

        is_left()

    def test_what_was_planned_before_has_no_effect(self, harness: PolicyHarness) -> None:
        plans: list[tuple[PolicySnapshot, object]] = []

        @policy_drawn.EXAMPLES
        @given(sane_clusters())
        def collect(cluster: ModelCluster) -> None:
            plans.append((cluster.snapshot(), harness.plan(cluster.snapshot(), seed=3)))

        collect()
        for snapshot, plan in reversed(plans):
            assert harness.plan(snapshot, seed=3) == plan

    def test_there_is_a_plan_for_every_snapshot(self, harness: PolicyHarness) -> None:
        @settings(policy_drawn.EXAMPLES, max_examples=400)
        @given(wild_snapshots())
        def has_a_plan(snapshot: PolicySnapshot) -> None:
            harness.plan(snapshot)

        has_a_plan()

    def test_actions_are_of_known_kinds_with_fence_and_reason(self, harness: PolicyHarness) -> None:
        @policy_drawn.EXAMPLES
        @given(sane_clusters())
        def are_formed(cluster: ModelCluster) -> None:
            for action in harness.plan(cluster.snapshot()):
                check_form(cluster.snapshot(), action)

        are_formed()

    def test_nothing_is_proposed_that_could_cost_a_majority_or_its_data(self, harness: PolicyHarness) -> None:
        """The model refuses it: evictions, second replicas on a node, full disks, nodes that are not live."""

        @settings(policy_drawn.EXAMPLES, max_examples=200)
        @given(sane_clusters())
        def is_refused_nothing(cluster: ModelCluster) -> None:
            for seed in range(4):
                harness.step(cluster, seed)
                cluster.settle()

        is_refused_nothing()
