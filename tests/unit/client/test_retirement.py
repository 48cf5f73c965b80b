"""How far the retirement of a server is: replicas, bytes and moves from a snapshot of the cluster."""

from __future__ import annotations

from stelae.cli.run_server_modes import why_impossible
from stelae.client.retirement import Leaderships, Retirement, leaderships_of, retirement_of
from stelae.spi.consensus import Role
from stelae.spi.ids import TabletId
from stelae.spi.members import MemberType
from stelae.spi.policy import NodeHealth, ReplicaView
from stelae.testing.conformance.policy_model import GIB, ModelCluster, node_name, node_view


def test_what_a_server_still_has_is_counted_and_what_is_on_the_move() -> None:
    model = ModelCluster([node_view(number) for number in range(1, 6)], copy_rounds=9)
    model.create("a", (1, 2, 3))
    model.create("b", (1, 2, 4), size=3 * GIB)
    model.create("c", (2, 3, 4))
    model.set_health(1, NodeHealth.RETIRING)
    assert retirement_of(node_name(1), model.snapshot()) == Retirement(2, 4 * GIB, 0, 4, needed=3)
    before = model.tablets[TabletId("a")].replicas
    newcomer = ReplicaView(
        node_id=node_name(5), member_type=MemberType.PRE_VOTER, role=Role.LEARNER, healthy=False, copying=True
    )
    model.change("a", replicas=(*before, newcomer))
    model.set_health(4, NodeHealth.DEAD)
    left = retirement_of(node_name(1), model.snapshot())
    assert left == Retirement(2, 4 * GIB, 1, 3, needed=3) and str(left) == "2 replicas are left, 1 of them on the move"
    assert retirement_of(node_name(5), model.snapshot()).replicas == 1
    assert retirement_of(node_name(9), model.snapshot()) == Retirement(0, 0, 0, 3)


def test_a_retirement_that_too_few_servers_are_left_for_says_so_and_what_to_do() -> None:
    """`stelae tserver retire --wait` waited for ever. After 20 s it named a command that did not give the reason."""
    said = why_impossible("tserver-3", Retirement(5, 0, 0, 2, needed=3))
    assert said is not None and "its tablets need 3 servers, and only 2 others are live" in said
    assert "stelae table alter TABLE --replicas 1" in said and "stelae tserver activate tserver-3" in said
    assert why_impossible("tserver-3", Retirement(5, 0, 0, 3, needed=3)) is None
    assert why_impossible("tserver-3", Retirement(0, 0, 0, 0)) is None
    alone = why_impossible("tserver-3", Retirement(1, 0, 0, 0, needed=1))
    assert alone is not None and "alter" not in alone and "no other is live" in alone


def test_the_tablets_that_a_server_leads_are_counted_and_those_that_no_other_replica_can_lead() -> None:
    model = ModelCluster([node_view(number) for number in range(1, 5)])
    model.create("a", (1, 2, 3))
    model.create("b", (2, 1, 3))
    model.create("c", (1,), factor=1)
    assert leaderships_of(node_name(1), model.snapshot()) == Leaderships(left=1, alone=1)
    assert leaderships_of(node_name(2), model.snapshot()) == Leaderships(left=1, alone=0)
    assert leaderships_of(node_name(4), model.snapshot()) == Leaderships(left=0, alone=0)
    assert str(Leaderships(left=2, alone=0)) == "it leads 2 tablets that other replicas could lead"
