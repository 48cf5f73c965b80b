"""Conformance checks for policies: plans are pure, exist for every snapshot, and consist of well-formed actions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given, settings

from stelae.spi.policy import Action, MasterPolicy, NodeHealth, PolicySnapshot
from stelae.testing.conformance import policy_strategies
from stelae.testing.conformance.policy_harness import PolicyHarness, plan_of
from stelae.testing.conformance.policy_model import ModelCluster, check_form, node_view
from stelae.testing.conformance.policy_strategies import sane_clusters, wild_snapshots
from stelae.testing.other_process import call_elsewhere
from stelae.testing.outside_calls import outside_calls, steps_of

FEW_TABLETS, MANY_TABLETS, GROWTH_MAX = 250, 1000, 6.0
"""Four times as many tablets may take six times as many steps. Looking at each pair of tablets takes sixteen times."""


def in_other_order(snapshot: PolicySnapshot, rng: random.Random) -> PolicySnapshot:
    """Return the same snapshot with its mappings filled in another order."""
    nodes = sorted(snapshot.nodes.items(), key=lambda item: (rng.random(), item[0]))
    tablets = sorted(snapshot.tablets.items(), key=lambda item: (rng.random(), item[0]))
    return msgspec.structs.replace(snapshot, nodes=dict(nodes), tablets=dict(tablets))


def plans_of(policy: type[MasterPolicy], config: Any, snapshots: Sequence[PolicySnapshot]) -> list[tuple[Action, ...]]:
    """Return the plan for each snapshot. It is called in another process."""
    return [plan_of(policy, config, snapshot, seed=5) for snapshot in snapshots]


def large_clusters(tablets: int) -> dict[str, PolicySnapshot]:
    """Return snapshots of a cluster of 20 nodes: with new tablets, with a node lost, with four nodes that have all."""
    found = {}
    for name, spread_over in (("new tablets", 0), ("a lost node", 20), ("an uneven cluster", 4)):
        cluster = ModelCluster(node_view(n, f"/dc/r{n % 5}/h{n}") for n in range(1, 21))
        for at in range(tablets):
            cluster.create(f"t{at}", [1 + (at + step) % spread_over for step in range(3)] if spread_over else ())
        if name == "a lost node":
            cluster.set_health(1, NodeHealth.DEAD)
        found[name] = cluster.snapshot()
    return found


class PurityChecks:
    """Checks of purity and form."""

    def test_equal_snapshots_and_random_sources_give_equal_plans(self, harness: PolicyHarness) -> None:
        @policy_strategies.EXAMPLES
        @given(sane_clusters())
        def plans_are_equal(cluster: ModelCluster) -> None:
            snapshot = cluster.snapshot()
            first = harness.plan(snapshot, seed=7)
            for seed in range(2):
                assert harness.plan(in_other_order(snapshot, random.Random(seed)), seed=7) == first

        plans_are_equal()

    def test_a_plan_does_not_depend_on_the_hashes_of_strings(self, harness: PolicyHarness) -> None:
        """A loop over a set of node ids has another order in each process, so its plan could not be replayed."""
        snapshots: list[PolicySnapshot] = []

        @policy_strategies.EXAMPLES
        @given(sane_clusters())
        def collect(cluster: ModelCluster) -> None:
            snapshots.append(cluster.snapshot())

        collect()
        for hash_seed in (1, 2):
            found = call_elsewhere(plans_of, harness.policy, harness.config, snapshots, hash_seed=hash_seed)
            assert found == [harness.plan(snapshot, seed=5) for snapshot in snapshots]

    def test_a_plan_reads_no_clock_and_opens_and_starts_nothing(self, harness: PolicyHarness) -> None:
        """A plan that depends on more than its arguments cannot be replayed. It may look without using what it sees."""

        @policy_strategies.EXAMPLES
        @given(sane_clusters())
        def looks_at_its_arguments_alone(cluster: ModelCluster) -> None:
            _, found = outside_calls(harness.plan, cluster.snapshot())
            assert not found, f"a plan calls {', '.join(sorted(found))}"

        looks_at_its_arguments_alone()

    def test_the_time_of_a_plan_grows_about_as_the_number_of_tablets(self, harness: PolicyHarness) -> None:
        """Time is counted in lines of Python that run. What compiled code does meanwhile is not counted."""
        few, many = large_clusters(FEW_TABLETS), large_clusters(MANY_TABLETS)
        for name, snapshot in few.items():
            steps = steps_of(harness.plan, snapshot), steps_of(harness.plan, many[name])
            assert steps[1] <= GROWTH_MAX * steps[0], (
                f"{name}: a plan takes {steps[0]} steps for {FEW_TABLETS} tablets, {steps[1]} for {MANY_TABLETS}"
            )

    def test_a_plan_does_not_change_its_snapshot(self, harness: PolicyHarness) -> None:
        @policy_strategies.EXAMPLES
        @given(sane_clusters())
        def is_left(cluster: ModelCluster) -> None:
            snapshot = cluster.snapshot()
            harness.plan(snapshot)
            assert snapshot == cluster.snapshot()
            assert (list(snapshot.nodes), list(snapshot.tablets)) == (list(cluster.nodes), list(cluster.tablets))

        is_left()

    def test_earlier_plans_have_no_effect_on_a_plan(self, harness: PolicyHarness) -> None:
        plans: list[tuple[PolicySnapshot, object]] = []

        @policy_strategies.EXAMPLES
        @given(sane_clusters())
        def collect(cluster: ModelCluster) -> None:
            plans.append((cluster.snapshot(), harness.plan(cluster.snapshot(), seed=3)))

        collect()
        for snapshot, plan in reversed(plans):
            assert harness.plan(snapshot, seed=3) == plan

    def test_there_is_a_plan_for_every_snapshot(self, harness: PolicyHarness) -> None:
        @settings(policy_strategies.EXAMPLES, max_examples=400)
        @given(wild_snapshots())
        def has_a_plan(snapshot: PolicySnapshot) -> None:
            harness.plan(snapshot)

        has_a_plan()

    def test_actions_have_a_known_kind_a_fence_and_a_reason(self, harness: PolicyHarness) -> None:
        @policy_strategies.EXAMPLES
        @given(sane_clusters())
        def are_formed(cluster: ModelCluster) -> None:
            for action in harness.plan(cluster.snapshot()):
                check_form(cluster.snapshot(), action)

        are_formed()

    def test_no_action_could_cost_a_tablet_its_majority_or_its_data(self, harness: PolicyHarness) -> None:
        """The model refuses unsafe evictions, second replicas on a node, full disks, nodes that are not live."""

        @settings(policy_strategies.EXAMPLES, max_examples=1000)
        @given(sane_clusters())
        def is_refused_nothing(cluster: ModelCluster) -> None:
            for seed in range(4):
                harness.step(cluster, seed)
                cluster.pass_round()

        is_refused_nothing()
