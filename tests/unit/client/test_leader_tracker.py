"""The tracker follows the leader among the members that it knows, and says when it may not know all of them."""

from __future__ import annotations

from stelae.client.leader_tracker import LeaderTracker
from stelae.spi.ids import NodeId

A, B, C, D = (NodeId(name) for name in "abcd")


def tracker(*members: NodeId) -> tuple[LeaderTracker, list[str]]:
    made, lost = LeaderTracker(members or (A, B, C)), list[str]()
    made.on_lost = lambda: lost.append("lost")
    return made, lost


def test_a_known_leader_is_asked_at_once_and_the_members_are_not_looked_up() -> None:
    made, lost = tracker()
    assert made.refused_by(A, C)
    assert (made.current, lost) == (C, [])


def test_a_leader_that_is_no_known_member_means_that_the_members_have_changed() -> None:
    made, lost = tracker()
    assert not made.refused_by(A, D)
    assert lost == ["lost"]


def test_members_that_were_all_asked_in_vain_are_looked_up_again() -> None:
    made, lost = tracker()
    made.failed(A)
    made.failed(B)
    assert lost == []
    made.refused_by(C, None)
    assert lost == ["lost"]
    made.failed(A)
    assert lost == ["lost"] * 2, "until the members are learned"


def test_a_hint_that_helps_ends_the_count_of_vain_questions() -> None:
    made, lost = tracker()
    made.failed(A)
    made.failed(B)
    made.refused_by(C, A)
    made.failed(A)
    made.failed(B)
    assert lost == []


def asked(made: LeaderTracker, hints: dict[NodeId, NodeId], count: int) -> list[NodeId]:
    """The nodes that are asked in turn, if those in ``hints`` name a leader and the others fail."""
    found = []
    for _ in range(count):
        node = made.current
        found.append(node)
        if node in hints:
            made.refused_by(node, hints[node])
        else:
            made.failed(node)
    return found


def test_a_removed_member_that_names_a_lost_one_does_not_keep_the_client_from_the_others() -> None:
    made, lost = tracker(D, A, B, C)
    assert asked(made, {D: C}, 4) == [D, C, D, A], "C, after which D is the next, is followed once"
    assert lost == []
    assert asked(made, {D: C}, 1) == [B]
    assert lost == ["lost"], "each of the four was asked in vain"


def test_two_nodes_that_name_each_other_do_not_keep_the_client_either() -> None:
    made, lost = tracker(A, B, C)
    assert asked(made, {A: B, B: A}, 6) == [A, B, A, B, C, A]
    assert lost == ["lost"]


def test_a_node_that_was_named_wrongly_is_followed_again_after_a_node_has_served() -> None:
    made, _ = tracker()
    assert made.refused_by(A, C)
    made.failed(C)
    made.served()
    assert made.refused_by(A, C)
    made.failed(C)
    assert not made.refused_by(A, C)
    assert made.current == B


def test_new_members_keep_the_node_that_is_asked_unless_a_leader_is_known() -> None:
    made, _ = tracker()
    made.failed(A)
    made.learn([B, C, D])
    assert (made.current, made.members) == (B, [B, C, D])
    made.learn([B, C, D], leader=D)
    assert made.current == D
    made.learn([A, B], leader=C)
    assert made.current == A, "neither the node asked before nor the leader is a member"


def test_learning_counts_as_a_move_only_if_another_node_is_asked() -> None:
    made, _ = tracker()
    made.learn([A, D])
    assert made.changes == 0
    made.learn([D])
    assert made.changes == 1
