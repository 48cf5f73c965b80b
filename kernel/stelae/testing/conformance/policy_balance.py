"""Conformance checks for policies: new tablets, locations, and an even spread of replicas and leaders."""

from __future__ import annotations

from collections import Counter

from stelae.spi.ids import NodeId, TabletId
from stelae.spi.policy import ActionKind, NodeHealth
from stelae.testing.conformance.policy_harness import PolicyHarness
from stelae.testing.conformance.policy_model import GIB, ModelCluster, leader_of, node_name, node_view


def replicas_per_node(cluster: ModelCluster) -> Counter[NodeId]:
    """Return how many replicas each node has; zero for nodes without any."""
    found = Counter(dict.fromkeys(cluster.nodes, 0))
    found.update(r.node_id for tablet in cluster.tablets.values() for r in tablet.replicas)
    return found


def leaders_per_node(cluster: ModelCluster) -> Counter[NodeId]:
    """Return how many tablets each node leads; zero for nodes that lead none."""
    found = Counter(dict.fromkeys(cluster.nodes, 0))
    found.update(leader for tablet in cluster.tablets.values() if (leader := leader_of(tablet)) is not None)
    return found


def locations_of(cluster: ModelCluster, name: TabletId, level: int) -> list[str]:
    """Return the locations of a tablet's replicas, each cut to its first ``level`` levels."""
    nodes = [cluster.nodes[replica.node_id] for replica in cluster.tablets[name].replicas]
    return ["/".join(node.location.split("/")[: level + 1]) for node in nodes]


def racks(racks_count: int, nodes_each: int, *, copy_rounds: int = 1) -> ModelCluster:
    """Make a cluster of nodes in the racks of one data centre."""
    hosts = [(rack, host) for rack in range(racks_count) for host in range(nodes_each)]
    nodes = (node_view(n, f"/dc/r{rack}/h{n}") for n, (rack, _) in enumerate(hosts, 1))
    return ModelCluster(nodes, copy_rounds)


class BalanceChecks:
    """Checks of where replicas and leaders are placed."""

    def test_a_new_tablet_gets_all_its_voters_at_once(self, harness: PolicyHarness) -> None:
        cluster = racks(3, 2)
        cluster.create("t", factor=3)
        actions = harness.step(cluster)
        assert [action.kind for action in actions] == [ActionKind.PLACE] * 3
        assert len({action.node_id for action in actions}) == 3
        assert harness.step(cluster) == ()

    def test_a_new_tablet_waits_until_there_are_enough_servers(self, harness: PolicyHarness) -> None:
        cluster = racks(2, 1)
        cluster.create("t", factor=3)
        assert harness.step(cluster) == ()
        cluster.nodes[node_name(9)] = node_view(9)
        assert len(harness.step(cluster)) == 3

    def test_new_replicas_go_to_as_many_locations_as_possible(self, harness: PolicyHarness) -> None:
        for racks_count in (2, 3, 5):
            cluster = racks(racks_count, 6 // racks_count + 1)
            for at in range(20):
                cluster.create(f"t{at}", factor=3)
            harness.step(cluster)
            for tablet_id in cluster.tablets:
                assert len(set(locations_of(cluster, tablet_id, 2))) == min(3, racks_count)
                assert len(set(locations_of(cluster, tablet_id, 3))) == 3

    def test_data_centres_count_before_racks(self, harness: PolicyHarness) -> None:
        """One data centre has many racks, the others one each."""
        nodes = [node_view(n, f"/big/r{n}/h{n}") for n in range(1, 8)]
        nodes += [node_view(8, "/b/r/h8"), node_view(9, "/c/r/h9")]
        cluster = ModelCluster(nodes)
        for at in range(10):
            cluster.create(f"t{at}", factor=3)
        harness.step(cluster)
        assert {tuple(sorted(locations_of(cluster, name, 1))) for name in cluster.tablets} == {("/b", "/big", "/c")}

    def test_a_lost_replica_is_replaced_in_the_same_location(self, harness: PolicyHarness) -> None:
        cluster = racks(3, 2)
        cluster.create("t", (1, 3, 5))
        cluster.set_health(3, NodeHealth.DEAD)
        harness.converge(cluster)
        assert sorted(locations_of(cluster, TabletId("t"), 2)) == ["/dc/r0", "/dc/r1", "/dc/r2"]

    def test_replicas_that_share_a_location_are_moved_apart(self, harness: PolicyHarness) -> None:
        cluster = racks(3, 3)
        for at in range(3):
            cluster.create(f"t{at}", [3 * at + 1, 3 * at + 2, 3 * at + 3])
        harness.converge(cluster)
        for tablet_id in cluster.tablets:
            assert len(set(locations_of(cluster, tablet_id, 2))) == 3

    def test_new_replicas_are_spread_evenly(self, harness: PolicyHarness) -> None:
        cluster = racks(3, 3)
        for at in range(60):
            cluster.create(f"t{at}", factor=3)
        harness.converge(cluster)
        assert max(replicas_per_node(cluster).values()) <= 22
        assert min(replicas_per_node(cluster).values()) >= 18
        assert max(leaders_per_node(cluster).values()) <= 60 / 9 + 2

    def test_a_full_disk_gets_no_replica(self, harness: PolicyHarness) -> None:
        """It gets neither new tablets nor replicas of a dead server. The model refuses a replica that does not fit."""
        cluster = ModelCluster(node_view(n, free_bytes=(10 if n == 1 else 50) * GIB) for n in range(1, 6))
        cluster.create("whole-disk", (1,), factor=1, size=10 * GIB)
        for at in range(12):
            cluster.create(f"old{at}", (2, 3, 4))
            cluster.create(f"new{at}", factor=3)
        cluster.set_health(2, NodeHealth.DEAD)
        assert node_name(1) not in {action.node_id for action in harness.step(cluster)}
        harness.converge(cluster)

    def test_an_empty_server_gets_its_share_of_replicas(self, harness: PolicyHarness) -> None:
        cluster = racks(1, 4, copy_rounds=2)
        for at in range(16):
            cluster.create(f"t{at}", [1 + (at + step) % 3 for step in range(3)])
        harness.converge(cluster)
        counts = replicas_per_node(cluster)
        assert max(counts.values()) - min(counts.values()) <= 2
        assert len(cluster.added) <= 14

    def test_a_server_with_more_free_space_gets_more_replicas(self, harness: PolicyHarness) -> None:
        cluster = ModelCluster(node_view(n, free_bytes=(600 if n == 1 else 100) * GIB) for n in range(1, 7))
        for at in range(40):
            cluster.create(f"t{at}", factor=1)
        harness.step(cluster)
        counts = replicas_per_node(cluster)
        assert counts[node_name(1)] > 2 * max(count for name, count in counts.items() if name != node_name(1))

    def test_large_tablets_are_spread_by_their_bytes(self, harness: PolicyHarness) -> None:
        cluster = racks(1, 4)
        for at in range(8):
            cluster.create(f"big{at}", (1,), factor=1, size=8 * GIB)
            cluster.create(f"small{at}", (2 + at % 3,), factor=1, size=1)
        harness.converge(cluster)
        on = Counter(t.replicas[0].node_id for name, t in cluster.tablets.items() if name.startswith("big"))
        assert max(on.values()) <= 3

    def test_leaders_are_spread_by_transfer(self, harness: PolicyHarness) -> None:
        cluster = racks(1, 3)
        for at in range(12):
            cluster.create(f"t{at}", (1, 2, 3))
        actions = harness.step(cluster)
        assert {action.kind for action in actions} == {ActionKind.TRANSFER}
        assert sorted(leaders_per_node(cluster).values()) == [4, 4, 4]
        assert harness.step(cluster) == ()
