"""How far the retirement of a server is: replicas, bytes and moves from a snapshot of the cluster."""

from __future__ import annotations

from stelae.client.retirement import Retirement, retirement_of
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
    assert retirement_of(node_name(1), model.snapshot()) == Retirement(2, 4 * GIB, 0, 4)
    before = model.tablets[TabletId("a")].replicas
    newcomer = ReplicaView(
        node_id=node_name(5), member_type=MemberType.PRE_VOTER, role=Role.LEARNER, healthy=False, copying=True
    )
    model.change("a", replicas=(*before, newcomer))
    model.set_health(4, NodeHealth.DEAD)
    left = retirement_of(node_name(1), model.snapshot())
    assert left == Retirement(2, 4 * GIB, 1, 3) and str(left) == "2 replicas are left, 1 of them on the move"
    assert retirement_of(node_name(5), model.snapshot()).replicas == 1
    assert retirement_of(node_name(9), model.snapshot()) == Retirement(0, 0, 0, 3)
