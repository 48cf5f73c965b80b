"""Checks of a policy: applied again and again, its plans come to rest, and never undo each other."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from stelae.spi.consensus import MemberType
from stelae.spi.policy import NodeHealth
from stelae.testing.conformance import policy_drawn
from stelae.testing.conformance.policy_drawn import sane_clusters
from stelae.testing.conformance.policy_harness import PolicyHarness
from stelae.testing.conformance.policy_model import ModelCluster, has_majority


class RestChecks:
    """Fixed points."""

    def test_plans_come_to_rest_and_bring_no_replica_twice(self, harness: PolicyHarness) -> None:
        @policy_drawn.EXAMPLES
        @given(sane_clusters())
        def come_to_rest(cluster: ModelCluster) -> None:
            harness.settle(cluster)
            assert len(set(cluster.added)) == len(cluster.added), "a replica was added, removed and added again"

        come_to_rest()

    def test_plans_come_to_rest_though_actions_are_lost(self, harness: PolicyHarness) -> None:
        @policy_drawn.EXAMPLES
        @given(sane_clusters(), st.integers(0, 1 << 16))
        def come_to_rest(cluster: ModelCluster, seed: int) -> None:
            harness.settle(cluster, dropping=random.Random(seed))

        come_to_rest()

    def test_at_rest_no_random_source_finds_anything_to_do(self, harness: PolicyHarness) -> None:
        @policy_drawn.EXAMPLES
        @given(sane_clusters())
        def stays_at_rest(cluster: ModelCluster) -> None:
            harness.settle(cluster)
            for seed in range(100, 104):
                assert harness.plan(cluster.snapshot(), seed) == ()

        stays_at_rest()

    def test_at_rest_every_tablet_has_what_the_cluster_can_give_it(self, harness: PolicyHarness) -> None:
        """Where all servers live and have room, and a leader can change the config: voters as many as wanted."""

        @policy_drawn.EXAMPLES
        @given(sane_clusters())
        def is_whole(cluster: ModelCluster) -> None:
            for number in range(1, len(cluster.nodes) + 1):
                cluster.set_health(number, NodeHealth.LIVE)
            for node_id, node in cluster.nodes.items():
                cluster.nodes[node_id] = type(node)(node_id=node_id, health=node.health, free_bytes=1 << 50)
            harness.settle(cluster)
            for tablet in cluster.tablets.values():
                if tablet.change_pending or not has_majority(tablet) or not tablet.replicas:
                    continue
                found = [r for r in tablet.replicas if r.member_type is MemberType.VOTER and r.healthy]
                assert len(found) == min(tablet.replication_factor, len(cluster.nodes))
                assert len(tablet.replicas) == len(found) or len(found) < tablet.replication_factor

        is_whole()
