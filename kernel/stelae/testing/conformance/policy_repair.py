"""Conformance checks for policies: lost replicas are added elsewhere, promoted, then evicted; pending changes wait."""

from __future__ import annotations

import itertools

import msgspec

from stelae.spi.ids import TabletId
from stelae.spi.members import MemberType
from stelae.spi.policy import Action, ActionKind, NodeHealth
from stelae.testing.conformance.policy_harness import PolicyHarness
from stelae.testing.conformance.policy_model import ModelCluster, leader_of, node_name, node_view

T = TabletId("t")
NODES = 6


def cluster_of(nodes: int = NODES, *, copy_rounds: int = 2) -> ModelCluster:
    """Make a cluster of live nodes, numbered from 1, each in a location of its own."""
    return ModelCluster((node_view(n, f"/dc/r{n}/h{n}") for n in range(1, nodes + 1)), copy_rounds)


def voters(cluster: ModelCluster, name: TabletId = T) -> set[str]:
    """Return the nodes of a tablet's voters."""
    return {r.node_id for r in cluster.tablets[name].replicas if r.member_type is MemberType.VOTER}


def config_changes(actions: tuple[Action, ...]) -> list[Action]:
    """Return the actions that change a config."""
    return [action for action in actions if action.kind is not ActionKind.TRANSFER]


def only_change(actions: tuple[Action, ...]) -> Action:
    """Return the only action that changes a config."""
    found = config_changes(actions)
    assert len(found) == 1, f"{len(found)} changes of a config instead of one: {found}"
    return found[0]


class RepairChecks:
    """Checks of one tablet, while servers fail and return."""

    def test_a_dead_servers_replica_is_added_promoted_and_then_evicted(self, harness: PolicyHarness) -> None:
        cluster = cluster_of()
        cluster.create("t", (1, 2, 3))
        cluster.set_health(1, NodeHealth.DEAD)
        added = only_change(harness.step(cluster))
        assert (added.kind, added.member_type) == (ActionKind.ADD, MemberType.PRE_VOTER)
        assert added.node_id in {node_name(n) for n in (4, 5, 6)}
        assert harness.step(cluster) == ()
        cluster.pass_round()
        cluster.pass_round()
        assert len(voters(cluster)) == 4
        evicted = only_change(harness.step(cluster))
        assert (evicted.kind, evicted.node_id) == (ActionKind.REMOVE, node_name(1))
        assert voters(cluster) == {node_name(2), node_name(3), added.node_id}
        assert config_changes(harness.step(cluster)) == []

    def test_a_replacement_is_removed_if_the_dead_server_returns_before_its_promotion(
        self, harness: PolicyHarness
    ) -> None:
        cluster = cluster_of()
        cluster.create("t", (1, 2, 3))
        cluster.set_health(1, NodeHealth.DEAD)
        added = only_change(harness.step(cluster))
        cluster.set_health(1, NodeHealth.LIVE)
        removed = only_change(harness.step(cluster))
        assert (removed.kind, removed.node_id) == (ActionKind.REMOVE, added.node_id)
        assert voters(cluster) == {node_name(n) for n in (1, 2, 3)}
        assert config_changes(harness.step(cluster)) == []

    def test_while_a_majority_is_down_no_replica_is_evicted_or_added(self, harness: PolicyHarness) -> None:
        cluster = cluster_of()
        cluster.create("t", (1, 2, 3))
        cluster.set_health(1, NodeHealth.DEAD)
        cluster.set_health(2, NodeHealth.DEAD)
        assert harness.step(cluster) == ()
        cluster.set_health(2, NodeHealth.LIVE)
        assert [action.kind for action in config_changes(harness.step(cluster))] == [ActionKind.ADD]

    def test_a_replacement_that_dies_during_its_copy_is_replaced(self, harness: PolicyHarness) -> None:
        cluster = cluster_of(5)
        cluster.create("t", (1, 2, 3))
        cluster.set_health(1, NodeHealth.DEAD)
        added = only_change(harness.step(cluster))
        cluster.set_health(int(added.node_id, 16), NodeHealth.DEAD)
        harness.converge(cluster)
        (other,) = {node_name(4), node_name(5)} - {added.node_id}
        assert voters(cluster) == {node_name(2), node_name(3), other}
        assert len(cluster.tablets[T].replicas) == 3

    def test_a_failed_replica_on_a_live_server_is_replaced(self, harness: PolicyHarness) -> None:
        cluster = cluster_of()
        *others, failed = cluster.create("t", (1, 2, 3)).replicas
        cluster.change("t", replicas=(*others, msgspec.structs.replace(failed, healthy=False)))
        harness.converge(cluster)
        assert failed.node_id not in voters(cluster)
        assert len(voters(cluster)) == 3

    def test_a_server_in_maintenance_is_not_replaced(self, harness: PolicyHarness) -> None:
        cluster = cluster_of()
        cluster.create("t", (1, 2, 3))
        cluster.set_health(1, NodeHealth.MAINTENANCE)
        assert config_changes(harness.step(cluster)) == []
        cluster.set_health(1, NodeHealth.DEAD)
        assert [action.kind for action in config_changes(harness.step(cluster))] == [ActionKind.ADD]

    def test_a_tablet_with_a_pending_change_is_left_alone(self, harness: PolicyHarness) -> None:
        cluster = cluster_of()
        cluster.create("t", (1, 2, 3))
        cluster.set_health(1, NodeHealth.DEAD)
        cluster.change("t", change_pending=True)
        assert harness.step(cluster) == ()

    def test_a_retiring_server_is_emptied_and_serves_until_its_replicas_are_replaced(
        self, harness: PolicyHarness
    ) -> None:
        cluster = cluster_of()
        for at in range(6):
            cluster.create(f"t{at}", [1 + (at + step) % NODES for step in range(3)])
        cluster.set_health(1, NodeHealth.RETIRING)
        harness.converge(cluster)
        for tablet in cluster.tablets.values():
            assert len(tablet.replicas) == 3
            assert node_name(1) not in {replica.node_id for replica in tablet.replicas}
            assert leader_of(tablet) is not None

    def test_a_raised_replication_factor_adds_voters(self, harness: PolicyHarness) -> None:
        cluster = cluster_of()
        cluster.create("t", (1, 2, 3))
        cluster.change("t", replication_factor=5)
        harness.converge(cluster)
        assert len(voters(cluster)) == len(cluster.tablets[T].replicas) == 5

    def test_a_lowered_replication_factor_removes_voters_one_by_one(self, harness: PolicyHarness) -> None:
        cluster = cluster_of()
        cluster.create("t", (1, 2, 3, 4, 5), factor=5)
        cluster.change("t", replication_factor=3)
        counts = []
        for seed in range(6):
            counts.append(len(voters(cluster)))
            harness.step(cluster, seed)
        assert counts[0] == 5 and counts[-1] == 3
        assert all(before - after in (0, 1) for before, after in itertools.pairwise(counts))

    def test_of_too_many_voters_the_dead_ones_are_removed_first(self, harness: PolicyHarness) -> None:
        cluster = cluster_of()
        cluster.create("t", (1, 2, 3, 4, 5), factor=5)
        cluster.set_health(2, NodeHealth.DEAD)
        cluster.change("t", replication_factor=3)
        harness.converge(cluster)
        assert node_name(2) not in voters(cluster)
        assert len(voters(cluster)) == 3
