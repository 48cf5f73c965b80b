"""Moves that an operator asks for: one member takes the place of another one, which goes once the new one votes."""

from __future__ import annotations

from stelae.spi.consensus import Role
from stelae.spi.ids import TabletId
from stelae.spi.members import MemberType
from stelae.spi.policy import ActionKind
from stelae.testing.conformance.policy_model import ModelCluster, node_name
from tests.unit.placement_policy.clusters import NodeHealth, cluster, harness
from tests.unit.placement_policy.test_repair import kinds, member


def moving(replaced: int, on: tuple[int, ...] = (1, 2, 3, 4), factor: int = 3, **fields: object) -> ModelCluster:
    """A tablet whose fourth member takes the place of another one, as an operator has asked."""
    model = cluster(*("",) * 8)
    model.create("t", on, factor=factor)
    member(model, 4, replaces=node_name(replaced), **fields)
    return model


def test_a_leader_that_is_replaced_hands_over_and_goes() -> None:
    model = moving(1)
    (handed,) = harness(transfers_max=0).step(model)
    assert handed.kind is ActionKind.TRANSFER and handed.node_id != node_name(1)
    (gone,) = harness(transfers_max=0).step(model)
    assert kinds((gone,)) == [("REMOVE", 1)] and "is replaced by 00000000" in gone.reason
    assert harness(transfers_max=0).step(model) == ()


def test_a_member_that_is_replaced_does_not_go_while_the_rest_would_be_no_majority() -> None:
    model = moving(3, (1, 2, 3, 4, 5, 6), 5)
    for number in (5, 6):
        model.set_health(number, NodeHealth.MAINTENANCE)
    assert kinds(harness(transfers_max=0).step(model)) == [("REMOVE", 3)]
    model = moving(3, (1, 2, 3, 4, 5))
    member(model, 5, pinned=True)
    for number in (1, 2):
        model.set_health(number, NodeHealth.MAINTENANCE)
    assert harness(transfers_max=0).step(model) == (), "nor do those go that are in maintenance"
    model.set_health(2, NodeHealth.LIVE)
    assert kinds(harness(transfers_max=0).step(model)) == [("TRANSFER", 2)], "it leads by now"
    assert kinds(harness(transfers_max=0).step(model)) == [("REMOVE", 3)]


def test_a_new_member_on_a_server_in_maintenance_is_waited_for_before_the_other_one_goes() -> None:
    model = moving(3)
    model.set_health(4, NodeHealth.MAINTENANCE)
    assert harness(transfers_max=0).step(model) == ()
    model.set_health(4, NodeHealth.LIVE)
    assert kinds(harness(transfers_max=0).step(model)) == [("REMOVE", 3)]


def test_the_copy_of_a_move_is_no_spare_and_ends_a_need_if_the_replaced_member_dies() -> None:
    copied = {"member_type": MemberType.PRE_VOTER, "role": Role.LEARNER, "size_bytes": 0}
    model = moving(3, **copied)
    assert harness(transfers_max=0).step(model) == ()
    model.set_health(3, NodeHealth.DEAD)
    assert harness(transfers_max=0).step(model) == ()
    member(model, 4, member_type=MemberType.VOTER, role=Role.FOLLOWER)
    assert kinds(harness(transfers_max=0).step(model)) == [("REMOVE", 3)]


def test_the_copy_of_a_move_that_fails_is_removed_and_nothing_else_is_done() -> None:
    model = moving(3, member_type=MemberType.PRE_VOTER, role=Role.LEARNER, size_bytes=0)
    model.set_health(4, NodeHealth.DEAD)
    assert kinds(harness(transfers_max=0).step(model)) == [("REMOVE", 4)]
    assert harness(transfers_max=0).step(model) == ()


def test_a_member_of_any_type_is_replaced() -> None:
    for kind, role in ((MemberType.PRE_VOTER, Role.LEARNER), (MemberType.NON_VOTER, Role.LEARNER)):
        model = moving(5, (1, 2, 4, 5))
        member(model, 5, member_type=kind, role=role)
        assert kinds(harness(transfers_max=0).step(model)) == [("REMOVE", 5)]


def test_the_only_replica_of_a_tablet_is_moved() -> None:
    model = moving(1, (1, 4), 1)
    assert kinds(harness(transfers_max=0).step(model)) == [("TRANSFER", 4)]
    assert kinds(harness(transfers_max=0).step(model)) == [("REMOVE", 1)]


def test_a_member_that_replaces_a_former_member_or_itself_is_one_like_any_other() -> None:
    for replaced in (4, 7):
        model = moving(replaced)
        while (steps := kinds(harness(transfers_max=0).step(model))) and steps[0][0] == "TRANSFER":
            pass
        assert [kind for kind, _ in steps] == ["REMOVE"]
        assert len(model.tablets[TabletId("t")].replicas) == 3
