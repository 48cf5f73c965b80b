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
    """Checks of ``barred``, ``avoided``, ``copying``, ``pinned``, ``replaces`` and of members without rows."""

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

    def test_a_member_that_is_replaced_stays_until_the_other_one_votes_and_then_goes(
        self, harness: PolicyHarness
    ) -> None:
        """Each member in turn, also the one that leads. No other member is added or removed."""
        for replaced in (1, 2, 3):
            cluster = cluster_of()
            _begin_move(cluster, replaced, size_bytes=0)
            assert config_changes(harness.step(cluster)) == []
            _mark(cluster, 4, member_type=MemberType.VOTER, role=Role.FOLLOWER, healthy=False, copying=True)
            assert config_changes(harness.step(cluster)) == []
            _mark(cluster, 4, healthy=True, copying=False)
            harness.converge(cluster)
            assert voters(cluster) == {node_name(n) for n in (1, 2, 3, 4) if n != replaced}
            assert cluster.added == [] and all(r.replaces is None for r in cluster.tablets[T].replicas)

    def test_a_member_stays_if_the_one_that_was_to_replace_it_dies(self, harness: PolicyHarness) -> None:
        for votes in (False, True):
            cluster = cluster_of()
            _begin_move(cluster, 3, **({"member_type": MemberType.VOTER} if votes else {"size_bytes": 0}))
            cluster.set_health(4, NodeHealth.DEAD)
            harness.converge(cluster)
            assert voters(cluster) == {node_name(n) for n in (1, 2, 3)} and cluster.added == []

    def test_a_move_is_completed_although_another_member_is_lost_meanwhile(self, harness: PolicyHarness) -> None:
        cluster = cluster_of()
        _begin_move(cluster, 3, member_type=MemberType.VOTER)
        cluster.set_health(2, NodeHealth.DEAD)
        harness.converge(cluster)
        assert len(voters(cluster)) == 3 and {node_name(1), node_name(4)} < voters(cluster)
        assert not {node_name(2), node_name(3)} & voters(cluster)

    def test_a_member_that_an_operator_added_is_kept_while_another_one_is_moved(self, harness: PolicyHarness) -> None:
        for pinned, left in ((5, 4), (3, 4), (4, 3)):  # The new one gets the marks of the old one.
            cluster = cluster_of(7)
            _begin_move(cluster, 3, nodes=(1, 2, 3, 4, 5), member_type=MemberType.VOTER)
            _mark(cluster, pinned, pinned=True)
            harness.converge(cluster)
            assert len(voters(cluster)) == left and node_name(3) not in voters(cluster)

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


def _begin_move(
    cluster: ModelCluster, replaced: int, *, nodes: tuple[int, ...] = (1, 2, 3, 4), **fields: object
) -> None:
    """Create a tablet whose fourth member takes the place of another one, as a client has added it."""
    cluster.create("t", nodes)
    new = {"member_type": MemberType.PRE_VOTER, "role": Role.LEARNER, "replaces": node_name(replaced), **fields}
    if new["member_type"] is MemberType.VOTER:
        new["role"] = Role.FOLLOWER
    _mark(cluster, 4, **new)


def _mark(cluster: ModelCluster, number: int, **fields: object) -> None:
    """Change fields of the replica on a node."""
    replicas = cluster.tablets[TabletId("t")].replicas
    marked = (msgspec.structs.replace(r, **fields) if r.node_id == node_name(number) else r for r in replicas)
    cluster.change("t", replicas=tuple(marked))
