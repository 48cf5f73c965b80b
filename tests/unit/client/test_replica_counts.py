"""How far the masters are with the replicas of a table, from a snapshot of the cluster."""

from __future__ import annotations

from msgspec import structs

from stelae.client.replica_counts import ReplicaCounts, replica_counts
from stelae.spi.ids import TabletId
from stelae.spi.members import MemberType
from stelae.spi.policy import NodeHealth, ReplicaView
from stelae.testing.conformance.policy_model import ModelCluster, node_name, node_view

A = TabletId("a")


def cluster(*voters: int, factor: int = 3) -> ModelCluster:
    """Five servers with one tablet on some of them."""
    model = ModelCluster([node_view(number) for number in range(1, 6)])
    model.create("a", voters, factor=factor)
    return model


def is_done(model: ModelCluster, wanted: int = 3) -> bool:
    return replica_counts([A], wanted, model.snapshot()).is_done


def with_one(model: ModelCluster, number: int, **changed: object) -> ModelCluster:
    """Change one replica of the tablet."""
    replicas = model.tablets[A].replicas
    node = node_name(number)
    model.change("a", replicas=[structs.replace(r, **changed) if r.node_id == node else r for r in replicas])
    return model


def test_a_tablet_is_done_once_it_has_as_many_healthy_voters_as_wanted_and_no_change_is_under_way() -> None:
    assert is_done(cluster(1, 2, 3))
    assert not is_done(cluster(1, 2)) and not is_done(cluster(1, 2, 3, 4))
    assert not is_done(cluster(1, 2, 3), wanted=5), "masters have not taken up the new number yet"
    pending = cluster(1, 2, 3)
    pending.change("a", change_pending=True)
    assert not is_done(pending)
    down = cluster(1, 2, 3)
    down.set_health(2, NodeHealth.DEAD)
    assert not is_done(down)
    for changed in ({"copying": True}, {"member_type": MemberType.PRE_VOTER}, {"member_type": MemberType.NON_VOTER}):
        assert not is_done(with_one(cluster(1, 2, 3), 3, **changed)), changed


def test_a_replica_that_an_operator_pinned_is_one_more_and_one_that_replaces_another_is_not() -> None:
    assert is_done(with_one(cluster(1, 2, 3, 4), 4, pinned=True))
    assert not is_done(with_one(cluster(1, 2, 3), 3, pinned=True))
    assert not is_done(with_one(cluster(1, 2, 3, 4), 4, pinned=True, replaces=node_name(1))), "the other is to leave"
    assert is_done(with_one(cluster(1, 2, 3), 3, pinned=True, replaces=node_name(5))), "the other has left"
    reader = cluster(1, 2, 3)
    one = reader.tablets[A].replicas[1]
    more = ReplicaView(node_id=node_name(4), member_type=MemberType.NON_VOTER, role=one.role, healthy=True)
    reader.change("a", replicas=[*reader.tablets[A].replicas, more])
    assert is_done(reader), "a replica that never votes is not counted"


def test_what_is_done_and_what_is_missing_are_said_in_words() -> None:
    model = cluster(1, 2, 3)
    model.create("b", (1, 2))
    unseen = TabletId("c")
    counts = replica_counts([A, TabletId("b"), unseen], 3, model.snapshot())
    assert counts == ReplicaCounts(wanted=3, tablets=3, done=1, joining=0, servers=5)
    assert str(counts) == "1 of 3 tablets with 3 replicas" and counts.why_impossible == ""
    for number in (1, 2, 3, 4):
        model.set_health(number, NodeHealth.DEAD)
    why = replica_counts([A], 3, model.snapshot()).why_impossible
    assert why == "1 tablet server is live, and each replica needs a server of its own; add or start one"
