"""Conformance checks for policies: plans, applied again and again, converge and never undo each other."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from stelae.spi.members import MemberType
from stelae.spi.policy import NodeHealth
from stelae.testing.conformance import policy_strategies
from stelae.testing.conformance.policy_harness import PolicyHarness
from stelae.testing.conformance.policy_model import ModelCluster, has_majority
from stelae.testing.conformance.policy_strategies import sane_clusters


class ConvergenceChecks:
    """Checks that repeated plans reach a state in which nothing is left to do."""

    def test_plans_converge_and_add_no_replica_twice(self, harness: PolicyHarness) -> None:
        @policy_strategies.EXAMPLES
        @given(sane_clusters())
        def converges(cluster: ModelCluster) -> None:
            harness.converge(cluster)
            assert len(set(cluster.added)) == len(cluster.added), "a replica was added, removed and added again"

        converges()

    def test_plans_converge_even_if_actions_are_lost(self, harness: PolicyHarness) -> None:
        @policy_strategies.EXAMPLES
        @given(sane_clusters(), st.integers(0, 1 << 16))
        def converges(cluster: ModelCluster, seed: int) -> None:
            harness.converge(cluster, dropping=random.Random(seed))

        converges()

    def test_once_converged_every_random_source_gives_an_empty_plan(self, harness: PolicyHarness) -> None:
        @policy_strategies.EXAMPLES
        @given(sane_clusters())
        def stays_empty(cluster: ModelCluster) -> None:
            harness.converge(cluster)
            for seed in range(100, 104):
                assert harness.plan(cluster.snapshot(), seed) == ()

        stays_empty()

    def test_once_converged_every_tablet_has_as_many_voters_as_possible(self, harness: PolicyHarness) -> None:
        """Where all servers are live and have space and a majority is up, a tablet has as many voters as wanted."""

        @policy_strategies.EXAMPLES
        @given(sane_clusters())
        def has_its_voters(cluster: ModelCluster) -> None:
            for number in range(1, len(cluster.nodes) + 1):
                cluster.set_health(number, NodeHealth.LIVE)
            for node_id, node in cluster.nodes.items():
                cluster.nodes[node_id] = type(node)(node_id=node_id, health=node.health, free_bytes=1 << 50)
            harness.converge(cluster)
            for tablet in cluster.tablets.values():
                if tablet.change_pending or not has_majority(tablet) or not tablet.replicas:
                    continue
                found = [r for r in tablet.replicas if r.member_type is MemberType.VOTER and r.healthy]
                extra, usable = sum(r.pinned for r in found), len(cluster.nodes) - len(tablet.barred)
                wanted = tablet.replication_factor
                assert min(wanted, usable) <= len(found) <= wanted + extra
                assert len(tablet.replicas) == len(found) or len(found) < tablet.replication_factor

        has_its_voters()
