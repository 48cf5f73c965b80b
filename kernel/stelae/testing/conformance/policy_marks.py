"""Conformance checks for policies: what the masters and operators say about nodes and replicas of one tablet."""

from __future__ import annotations

import msgspec

from stelae.spi.consensus import Role
from stelae.spi.ids import TabletId
from stelae.spi.members import MemberType
from stelae.spi.policy import ActionKind, NodeHealth
from stelae.testing.conformance.policy_harness import PolicyHarness
from stelae.testing.conformance.policy_model import ModelCluster, node_name
from stelae.testing.conformance.policy_repair import T, cluster_of, config_changes, only_change, voters

SEEDS = range(8)


class MarkChecks:
    """Checks of ``barred``, ``avoided``, ``copying``, ``pinned`` and of members without rows."""

    def test_a_barred_node_gets_no_replica_even_if_no_other_can(self, harness: PolicyHarness) -> None:
        """Masters refuse it each time, so a policy that asks for it never repairs the tablet."""
        for nodes, wanted in ((5, {node_name(5)}), (4, set())):
            for seed in SEEDS:
                cluster = cluster_of(nodes)
                cluster.create("t", (1, 2, 3))
                cluster.change("t", barred=(node_name(4),))
                cluster.set_health(1, NodeHealth.DEAD)
                assert {a.node_id for a in config_changes(harness.step(cluster, seed))} == wanted

    def test_a_node_where_a_copy_has_just_failed_gets_the_next_one_only_if_no_other_can(
        self, harness: PolicyHarness
    ) -> None:
        for nodes, wanted in ((5, node_name(5)), (4, node_name(4))):
            for seed in SEEDS:
                cluster = cluster_of(nodes)
                cluster.create("t", (1, 2, 3))
                cluster.change("t", avoided=(node_name(4),))
                cluster.set_health(1, NodeHealth.DEAD)
                assert only_change(harness.step(cluster, seed)).node_id == wanted

    def test_a_replica_that_is_being_copied_is_not_replaced_until_it_stalls(self, harness: PolicyHarness) -> None:
        for learner in (False, True):
            cluster = cluster_of()
            cluster.create("t", (1, 2, 3))
            if learner:
                _mark(cluster, 3, member_type=MemberType.PRE_VOTER, role=Role.LEARNER)
            _mark(cluster, 3, healthy=False, copying=True, size_bytes=0)
            assert config_changes(harness.step(cluster)) == []
            _mark(cluster, 3, copying=False)
            assert [action.kind for action in config_changes(harness.step(cluster))] == [ActionKind.ADD]

    def test_a_member_that_an_operator_added_is_kept_besides_the_wanted_number(self, harness: PolicyHarness) -> None:
        cluster = cluster_of()
        cluster.create("t", (1, 2, 3, 4))
        _mark(cluster, 4, pinned=True)
        harness.converge(cluster)
        assert voters(cluster) == {node_name(n) for n in (1, 2, 3, 4)}

    def test_a_member_that_an_operator_added_takes_the_place_of_one_that_is_lost(self, harness: PolicyHarness) -> None:
        cluster = cluster_of()
        cluster.create("t", (1, 2, 3, 4))
        _mark(cluster, 4, pinned=True)
        cluster.set_health(3, NodeHealth.DEAD)
        harness.converge(cluster)
        assert voters(cluster) == {node_name(n) for n in (1, 2, 4)}

    def test_voters_with_rows_stay_while_a_witness_lacks_them(self, harness: PolicyHarness) -> None:
        """A witness counts towards a majority, but has no rows. The model refuses a majority without rows."""
        cluster = cluster_of(3)
        cluster.create("t", (1, 2, 3), factor=1)
        _mark(cluster, 3, member_type=MemberType.WITNESS, size_bytes=0)
        for seed in SEEDS:
            harness.step(cluster, seed)
        assert voters(cluster) == {node_name(1), node_name(2)}
        _mark(cluster, 3, member_type=MemberType.VOTER, size_bytes=1)
        harness.converge(cluster)
        assert len(cluster.tablets[T].replicas) == 1


def _mark(cluster: ModelCluster, number: int, **fields: object) -> None:
    """Change fields of the replica on a node."""
    replicas = cluster.tablets[TabletId("t")].replicas
    marked = (msgspec.structs.replace(r, **fields) if r.node_id == node_name(number) else r for r in replicas)
    cluster.change("t", replicas=tuple(marked))
