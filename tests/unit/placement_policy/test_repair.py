"""Repairs, one tablet at a time: cases that the conformance suite leaves to each policy."""

from __future__ import annotations

import msgspec
import pytest

from stelae.spi.consensus import Role
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import MemberType
from stelae.spi.policy import Action, ActionKind
from stelae.testing.conformance.policy_model import node_name
from tests.unit.placement_policy.clusters import NodeHealth, cluster, harness, node_view

FLAT = ("",) * 6


def member(model: object, number: int, **fields: object) -> None:
    tablet = model.tablets[TabletId("t")]  # type: ignore[attr-defined]
    replicas = tuple(
        msgspec.structs.replace(replica, **fields) if replica.node_id == node_name(number) else replica
        for replica in tablet.replicas
    )
    model.change("t", replicas=replicas)  # type: ignore[attr-defined]


def kinds(actions: tuple[Action, ...]) -> list[tuple[str, int]]:
    return [(action.kind.value, int(action.node_id, 16)) for action in actions]


def test_a_leader_hands_over_before_it_is_evicted() -> None:
    model = cluster(*FLAT)
    model.create("t", (1, 2, 3, 4))
    model.set_health(1, NodeHealth.RETIRING)
    (handed,) = harness().step(model)
    assert handed.kind is ActionKind.TRANSFER
    assert kinds(harness().step(model)) == [("REMOVE", 1)]


def test_a_leader_in_maintenance_hands_over_while_it_answers() -> None:
    model = cluster(*FLAT)
    model.create("t", (1, 2, 3))
    model.nodes[node_name(1)] = msgspec.structs.replace(model.nodes[node_name(1)], health=NodeHealth.MAINTENANCE)
    (handed,) = harness().step(model)
    assert handed.kind is ActionKind.TRANSFER
    assert "MAINTENANCE" in handed.reason or "maintenance" in handed.reason


def test_of_five_with_two_dead_one_is_evicted_as_soon_as_a_replacement_votes() -> None:
    """Six voters of which four are healthy survive nothing; five of which four are healthy survive one."""
    model = cluster(*("",) * 8)
    model.create("t", (1, 2, 3, 4, 5, 6), factor=5)
    model.set_health(1, NodeHealth.DEAD)
    model.set_health(2, NodeHealth.DEAD)
    ((kind, number),) = kinds(harness().step(model))
    assert kind == "REMOVE" and number in (1, 2)
    assert [kind for kind, _ in kinds(harness().step(model))] == ["ADD"]


def test_a_tablet_without_a_leader_waits() -> None:
    model = cluster(*FLAT)
    model.create("t", (1, 2, 3))
    member(model, 1, role=Role.FOLLOWER)
    model.set_health(4, NodeHealth.DEAD)
    member(model, 3, healthy=False)
    assert harness().step(model) == ()


def test_two_that_claim_to_lead_are_believed_neither() -> None:
    model = cluster(*FLAT)
    model.create("t", (1, 2, 3))
    member(model, 2, role=Role.LEADER)
    member(model, 3, healthy=False)
    assert harness().step(model) == ()


def test_a_non_voter_on_a_dead_server_goes_once_all_is_well() -> None:
    model = cluster(*FLAT)
    model.create("t", (1, 2, 3, 4))
    member(model, 4, member_type=MemberType.NON_VOTER)
    model.set_health(4, NodeHealth.DEAD)
    member(model, 3, healthy=False)
    ((kind, added),) = kinds(harness().step(model))
    assert kind == "ADD"
    model.pass_round()
    assert kinds(harness().step(model)) == [("REMOVE", 3)]
    assert kinds(harness().step(model)) == [("REMOVE", 4)]
    assert {r.node_id for r in model.tablets[TabletId("t")].replicas} == {node_name(n) for n in (1, 2, added)}


def test_a_non_voter_on_a_live_server_is_let_be() -> None:
    model = cluster(*FLAT)
    model.create("t", (1, 2, 3, 4))
    member(model, 4, member_type=MemberType.NON_VOTER)
    assert harness().step(model) == ()


def test_a_witness_votes_and_is_not_handed_leadership() -> None:
    model = cluster(*FLAT)
    model.create("t", (1, 2, 3))
    member(model, 2, member_type=MemberType.WITNESS)
    model.nodes[node_name(1)] = msgspec.structs.replace(model.nodes[node_name(1)], health=NodeHealth.MAINTENANCE)
    assert kinds(harness().step(model)) == [("TRANSFER", 3)]


def test_no_server_is_given_more_copies_than_it_has_slots() -> None:
    model = cluster(*("",) * 4, copy_rounds=9)
    for at in range(8):
        model.create(f"t{at}", (1, 2, 3))
    model.set_health(3, NodeHealth.DEAD)
    for seed in range(3):
        harness(copies_per_node_max=2).step(model, seed)
    assert [int(node_id, 16) for _, node_id in model.added] == [4, 4]


@pytest.mark.parametrize(
    ("size", "settings", "added"),
    [(0, {}, 32), (8 << 20, {}, 2), (16 << 20, {}, 1), (0, {"small_replica_bytes": 0}, 1)],
)
def test_a_small_replica_takes_a_part_of_a_slot(size: int, settings: dict[str, int], added: int) -> None:
    """With whole slots, a thousand empty replicas left a server at four in each plan."""
    model = cluster(*("",) * 4, copy_rounds=9)
    for at in range(40):
        model.create(f"t{at:02}", (1, 2, 3), size=size)
    model.set_health(3, NodeHealth.DEAD)
    for seed in range(3):
        harness(copies_per_node_max=1, **settings).step(model, seed)
    assert len(model.added) == added


def test_small_copies_do_not_keep_out_a_large_one() -> None:
    model = cluster(*("",) * 4, copy_rounds=9)
    for at in range(31):
        model.create(f"a{at:02}", (1, 2, 3), size=0)
    for name in ("b", "c"):
        model.create(name, (1, 2, 3), size=1 << 30)
    model.set_health(3, NodeHealth.DEAD)
    for seed in range(3):
        harness(copies_per_node_max=1).step(model, seed)
    assert len(model.added) == 32, "it may take more than is left, and then nothing else arrives"


def test_what_a_copy_still_lacks_is_room_that_is_taken() -> None:
    """The copy has reported nothing yet; the disk has room for it and for no second one."""
    model = cluster(*("",) * 4, copy_rounds=9)
    model.create("a", (1, 2, 3), size=60 << 30)
    model.create("b", (1, 2, 3), size=30 << 30)
    model.nodes[node_name(4)] = node_view(4, free_bytes=80 << 30)
    model.set_health(3, NodeHealth.DEAD)
    for seed in range(4):
        harness().step(model, seed)
    assert len(model.added) == 1


def test_two_copies_for_one_missing_voter_leave_one() -> None:
    model = cluster(*FLAT, copy_rounds=9)
    model.create("t", (1, 2, 3, 4, 5))
    for number in (4, 5):
        member(model, number, member_type=MemberType.PRE_VOTER, role=Role.LEARNER, size_bytes=0)
    model.set_health(3, NodeHealth.DEAD)
    ((kind, number),) = kinds(harness().step(model))
    assert kind == "REMOVE" and number in (4, 5)
    assert harness().step(model) == ()


def test_repairs_begin_with_the_tablet_that_can_lose_least() -> None:
    model = cluster(*("",) * 9)
    model.create("a", (1, 2, 3, 4, 5), factor=5)
    model.create("b", (1, 6, 7))
    model.set_health(1, NodeHealth.DEAD)
    actions = harness().plan(model.snapshot())
    assert [action.tablet_id for action in actions if action.kind is ActionKind.ADD] == ["b", "a"]
    (first,) = harness(repairs_max=1, transfers_max=0).plan(model.snapshot())
    assert first.tablet_id == "b"


def test_a_spare_that_would_be_moved_there_anyway_stays() -> None:
    """Server 1 came back, but its rack has two of the three replicas; the spare is in a third rack."""
    model = cluster("/d/r1/h1", "/d/r1/h2", "/d/r2/h3", "/d/r3/h4", copy_rounds=9)
    model.create("t", (1, 2, 3, 4))
    member(model, 4, member_type=MemberType.PRE_VOTER, role=Role.LEARNER, size_bytes=0)
    assert harness().step(model) == ()
    member(model, 4, member_type=MemberType.VOTER, role=Role.FOLLOWER)
    ((kind, number),) = kinds(harness().step(model))
    assert kind in ("REMOVE", "TRANSFER") and number == 2


def test_a_dead_voter_too_many_goes_before_a_copy_that_nothing_needs() -> None:
    model = cluster(*("",) * 7, copy_rounds=9)
    model.create("t", (1, 2, 3, 4, 5))
    member(model, 5, member_type=MemberType.PRE_VOTER, role=Role.LEARNER, size_bytes=0)
    model.set_health(1, NodeHealth.DEAD)
    assert kinds(harness().step(model)) == [("REMOVE", 1)]
    assert kinds(harness().step(model)) == [("REMOVE", 5)]
    assert harness(transfers_max=0).step(model) == ()


def test_reasons_name_server_location_and_figures() -> None:
    model = cluster("/d/r1/h1", "/d/r2/h2", "/d/r3/h3", "/d/r1/h4")
    model.create("t", (1, 2, 3))
    model.set_health(1, NodeHealth.DEAD)
    (added,) = harness().step(model)
    assert added.reason == (
        "2 steady and 0 arriving of 3 voters: 00000000 (/d/r1/h1) is DEAD; a copy goes to 00000000 (/d/r1/h4), "
        "which has 0 replicas of an ideal 1.0, and 0 % of its share in bytes"
    )


def test_a_member_that_an_operator_added_is_kept_besides_the_wanted_number() -> None:
    model = cluster(*FLAT)
    model.create("t", (1, 2, 3, 4))
    member(model, 4, pinned=True)
    assert harness().step(model) == ()
    member(model, 4, member_type=MemberType.PRE_VOTER, role=Role.LEARNER, size_bytes=0)
    assert harness().step(model) == ()


def test_a_member_that_an_operator_added_takes_the_place_of_one_that_is_lost() -> None:
    model = cluster(*FLAT)
    model.create("t", (1, 2, 3, 4))
    member(model, 4, pinned=True)
    model.set_health(3, NodeHealth.DEAD)
    assert kinds(harness().step(model)) == [("REMOVE", 3)]


def test_of_two_too_many_the_one_that_an_operator_added_is_not_the_first_to_go() -> None:
    """The removal of the first one ends the pin. A tablet has then one voter too many, as any other."""
    for at in (1, 2, 3, 4, 5):
        model = cluster(*FLAT)
        model.create("t", (1, 2, 3, 4, 5))
        member(model, at, pinned=True)
        gone = list[int]()
        while len(gone) < 2:  # A leader hands over before it is removed.
            gone += [number for kind, number in kinds(harness(transfers_max=0).step(model)) if kind == "REMOVE"]
        assert gone[0] != at and len(model.tablets[TabletId("t")].replicas) == 3


def test_a_spare_goes_and_not_the_copy_for_a_member_that_an_operator_added() -> None:
    model = cluster(*FLAT, copy_rounds=9)
    model.create("t", (1, 2, 3, 4, 5))
    for number in (4, 5):
        member(model, number, member_type=MemberType.PRE_VOTER, role=Role.LEARNER, size_bytes=0, pinned=number == 4)
    assert kinds(harness().step(model)) == [("REMOVE", 5)]
    assert harness().step(model) == ()


def test_a_pinned_member_that_failed_does_not_count() -> None:
    model = cluster(*FLAT)
    model.create("t", (1, 2, 3, 4))
    member(model, 4, pinned=True)
    model.set_health(4, NodeHealth.DEAD)
    assert kinds(harness().step(model)) == [("REMOVE", 4)]


def test_a_voter_that_is_being_copied_is_not_replaced_until_its_server_dies() -> None:
    model = cluster(*FLAT)
    model.create("t", (1, 2, 3))
    member(model, 3, healthy=False, copying=True)
    assert harness().step(model) == ()
    model.set_health(3, NodeHealth.DEAD)
    assert [kind for kind, _ in kinds(harness().step(model))] == ["ADD"]


def test_a_newcomer_that_is_being_copied_is_waited_for_until_it_stalls() -> None:
    model = cluster(*FLAT)
    model.create("t", (1, 2, 3, 4))
    model.set_health(3, NodeHealth.DEAD)
    member(model, 4, member_type=MemberType.PRE_VOTER, role=Role.LEARNER, size_bytes=0, healthy=False, copying=True)
    assert harness().step(model) == ()
    member(model, 4, copying=False)
    ((kind, other),) = kinds(harness().step(model))
    assert kind == "ADD" and other in (5, 6)


def test_a_demoted_member_that_is_down_stays_while_a_witness_lacks_the_rows() -> None:
    model = cluster(*FLAT)
    model.create("t", (1, 2, 3, 4))
    member(model, 3, member_type=MemberType.NON_VOTER)
    member(model, 4, member_type=MemberType.WITNESS, pinned=True)
    model.set_health(3, NodeHealth.DEAD)
    assert harness().step(model) == ()
    member(model, 4, member_type=MemberType.VOTER)
    assert kinds(harness().step(model)) == [("REMOVE", 3)]


def test_a_tablet_with_a_pinned_member_is_not_moved_for_balance() -> None:
    model = cluster(*("",) * 6)
    for at in range(6):
        model.create(f"t{at}", (1, 2, 3))
        member_of = model.tablets[TabletId(f"t{at}")]
        replicas = tuple(
            msgspec.structs.replace(replica, pinned=replica.node_id == node_name(3)) for replica in member_of.replicas
        )
        model.change(f"t{at}", replicas=replicas)
    assert harness().step(model) == ()


def test_a_tablet_that_keeps_a_pinned_member_does_not_hold_up_the_moves_of_others() -> None:
    """Its four servers counted as busy as long as the pin lasts, so a new server stayed empty."""
    model = cluster(*("",) * 5)
    for at in range(8):
        model.create(f"t{at}", (1, 2, 3))
    model.create("pinned", (1, 2, 3, 4))
    replicas = model.tablets[TabletId("pinned")].replicas
    model.change("pinned", replicas=tuple(msgspec.structs.replace(r, pinned=r is replicas[3]) for r in replicas))
    moves = kinds(harness(transfers_max=0).step(model))
    assert {kind for kind, _ in moves} == {"ADD"} and ("ADD", 5) in moves


def test_a_barred_node_gets_no_replica_though_it_is_the_emptiest() -> None:
    model = cluster(*("",) * 5)
    model.create("full", (5,), factor=1)
    model.create("t", (1, 2, 3))
    model.change("t", barred=(node_name(4), NodeId("f" * 32)))
    model.set_health(3, NodeHealth.DEAD)
    assert ("ADD", 5) in kinds(harness().step(model))
    assert ("ADD", 4) not in kinds(harness().step(model))


def test_a_barred_node_gets_no_replica_for_balance() -> None:
    model = cluster(*("",) * 4)
    for at in range(6):
        model.create(f"t{at}", (1, 2, 3))
        model.change(f"t{at}", barred=(node_name(4),))
    assert harness(transfers_max=0).step(model) == ()
    model.change("t1", barred=())
    assert kinds(harness(transfers_max=0).step(model)) == [("ADD", 4)]


def test_a_node_where_a_copy_has_just_failed_gets_the_next_one_only_if_no_other_can() -> None:
    model = cluster(*("",) * 5)
    model.create("full", (5,), factor=1)
    model.create("t", (1, 2, 3))
    model.change("t", avoided=(node_name(4), NodeId("f" * 32)))
    model.set_health(3, NodeHealth.DEAD)
    assert ("ADD", 5) in kinds(harness().step(model)), "though it has more than the other one"
    model.set_health(5, NodeHealth.DEAD)
    assert ("ADD", 4) in kinds(harness().step(model)), "better there than nowhere"


def test_a_node_where_a_copy_has_just_failed_gets_no_replica_for_balance() -> None:
    model = cluster(*("",) * 4)
    for at in range(6):
        model.create(f"t{at}", (1, 2, 3))
        model.change(f"t{at}", avoided=(node_name(4),))
    assert harness(transfers_max=0).step(model) == ()


def test_a_voter_with_rows_is_not_evicted_while_a_witness_lacks_them() -> None:
    """Two witnesses and the leader were a majority: the other holder of the rows, which was down, was removed."""
    for lost in (True, False):
        model = cluster(*FLAT)
        model.create("t", (1, 2, 3, 4))
        for number in (3, 4):
            member(model, number, member_type=MemberType.WITNESS)
        if lost:
            model.set_health(2, NodeHealth.DEAD)
        assert harness(transfers_max=0).step(model) == ()
        for number in (3, 4):
            member(model, number, member_type=MemberType.VOTER)
        assert [kind for kind, _ in kinds(harness(transfers_max=0).step(model))] == ["REMOVE"]


def test_a_witness_whose_server_is_dead_is_evicted_once_others_vote_in_its_place() -> None:
    """It stayed for ever, as the fourth of four voters, of which all others had to run."""
    model = cluster(*FLAT)
    model.create("t", (1, 2, 3, 4))
    member(model, 3, member_type=MemberType.NON_VOTER)
    member(model, 4, member_type=MemberType.WITNESS, pinned=True)
    for number in (3, 4):
        model.set_health(number, NodeHealth.DEAD)
    ((kind, added),) = kinds(harness().step(model))
    assert kind == "ADD"
    model.pass_round()
    assert [kinds(harness(transfers_max=0).step(model)) for _ in range(3)] == [[("REMOVE", 4)], [("REMOVE", 3)], []]
    assert {r.node_id for r in model.tablets[TabletId("t")].replicas} == {node_name(n) for n in (1, 2, added)}


def test_of_a_dead_witness_and_a_dead_voter_with_rows_the_witness_is_evicted_first() -> None:
    model = cluster(*("",) * 8)
    model.create("t", (1, 2, 3, 4, 5, 6), factor=5)
    member(model, 6, member_type=MemberType.WITNESS)
    for number in (5, 6):
        model.set_health(number, NodeHealth.DEAD)
    assert kinds(harness(transfers_max=0).step(model)) == [("REMOVE", 6)]


def test_a_copy_to_a_server_that_is_then_stopped_for_maintenance_is_begun_elsewhere() -> None:
    """The tablet lacked a voter for as long as the maintenance took."""
    model = cluster(*FLAT, copy_rounds=9)
    model.create("t", (1, 2, 3))
    model.set_health(3, NodeHealth.DEAD)
    ((_, target),) = kinds(harness(transfers_max=0).step(model))
    model.set_health(target, NodeHealth.MAINTENANCE)
    member(model, target, copying=True)
    assert harness(transfers_max=0).step(model) == (), "it gets bytes"
    member(model, target, copying=False)
    ((kind, other),) = kinds(harness(transfers_max=0).step(model))
    assert kind == "ADD" and other not in (1, 2, 3, target)
    assert kinds(harness(transfers_max=0).step(model)) == [("REMOVE", target)]
    assert harness(transfers_max=0).step(model) == ()


def test_of_a_retiring_voter_that_serves_and_one_that_is_down_the_latter_goes_if_only_that_leaves_a_majority() -> None:
    """The retiring one was tried alone, so the two voters too many stayed, and its server could not be emptied."""
    model = cluster(*FLAT)
    model.create("t", (1, 2, 3), factor=1)
    model.set_health(2, NodeHealth.RETIRING)
    model.set_health(3, NodeHealth.MAINTENANCE)
    assert kinds(harness().step(model)) == [("REMOVE", 3)]
    assert kinds(harness().step(model)) == [("REMOVE", 2)]
