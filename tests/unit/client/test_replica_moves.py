"""Moves of a replica, against a leader that answers what the test says; with masters, which complete them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stelae.client import replicas as replicas_module
from stelae.client.replicas import ChangeOvertaken, ReplicaGone
from stelae.protocol.member_messages import ConfigView
from stelae.spi.errors import DeadlineExceeded, MemberChangeRefused, WrongConfigId
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import AddServer, Member, MemberType, RemoveServer
from tests.unit.client.member_views import LEADER, NEW, OTHER, config, view
from tests.unit.client.test_replicas import Answer, Leader, N, P, V, run


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas_module, "POLL_S", 0.0)


def moved(leader: Leader, **options: Any) -> Any:
    return run(leader.replicas.move(OTHER, "new:1", to=NEW, **options))


def moving(new: MemberType, index: int) -> ConfigView:
    """A config whose new member, if it is committed, replaces another one."""
    shown = view(new, index=index)
    marked = (msgspec.structs.replace(m, replaces=OTHER) if m.node_id == NEW else m for m in shown.committed.members)
    committed = msgspec.structs.replace(shown.committed, members=tuple(marked))
    return msgspec.structs.replace(shown, config=committed, committed=committed)


def without_other(shown: ConfigView) -> ConfigView:
    members = tuple(member for member in shown.committed.members if member.node_id != OTHER)
    smaller = msgspec.structs.replace(shown.committed, members=members)
    return msgspec.structs.replace(shown, config=smaller, committed=smaller)


def test_a_move_for_a_config_asks_for_both_changes_for_the_config_that_was_seen_before_each() -> None:
    leader = Leader(
        view(), view(), moving(P, 2), moving(V, 3), moving(V, 3), without_other(view(V, index=4)),
        answers=(None, None),
    )  # fmt: skip
    result = moved(leader, config_id=OpId(1, 1))
    assert result.changed and result.view.committed.op_id == OpId(1, 4)
    assert [one.committed_config_id for one in leader.asked] == [OpId(1, 1), OpId(1, 3)]
    added, removed = (one.change for one in leader.asked)
    assert isinstance(added, AddServer) and (added.replaces, added.pinned) == (OTHER, False)
    assert isinstance(removed, RemoveServer)


@pytest.mark.parametrize("new", [None, P, V])
def test_a_move_for_another_config_is_refused_before_the_leader_is_asked(new: MemberType | None) -> None:
    leader = Leader(view(new, index=7))
    with pytest.raises(
        WrongConfigId, match=r"committed config is 1\.7, the change is meant for 1\.5; look at the conf"
    ):
        moved(leader, config_id=OpId(1, 5))
    assert leader.asked == []


def test_a_move_for_a_config_does_not_remove_on_top_of_the_change_of_somebody_else() -> None:
    leader = Leader(
        view(), view(), moving(P, 2), moving(V, 3), moving(V, 4), answers=(None,)
    )  # fmt: skip
    with pytest.raises(WrongConfigId, match=r"committed config is 1\.4, the change is meant for 1\.3"):
        moved(leader, config_id=OpId(1, 1))
    assert len(leader.asked) == 1


def test_a_move_that_is_made_is_no_error_for_any_config() -> None:
    leader = Leader(without_other(view(V, index=4)))
    assert not moved(leader, config_id=OpId(1, 1)).changed and leader.asked == []


def test_a_move_to_another_voter_is_refused_and_a_move_that_was_cut_short_goes_on() -> None:
    """A wrong target cost the tablet a replica."""
    leader = Leader(view(V, index=3))
    with pytest.raises(MemberChangeRefused, match=r"with a vote already, .* the tablet would have 2 voters then"):
        moved(leader)
    assert leader.asked == []
    for begun in (with_fourth(moving(V, 3)), moving(V, 3)):
        leader = Leader(begun, begun, begun, begun, without_other(begun), answers=(None,))
        assert moved(leader).changed and len(leader.asked) == 1


def test_a_voter_that_an_operator_has_added_is_given_the_place() -> None:
    """A move that began as `add-replica` has no mark, which masters need."""
    begun = with_fourth(view(V, index=3))
    marked = with_fourth(moving(V, 4))
    leader = Leader(begun, begun, marked, marked, marked, without_other(marked), answers=(None, None))
    assert moved(leader).changed
    assert [type(one.change) for one in leader.asked] == [AddServer, RemoveServer]


def with_masters(*views: ConfigView, answers: tuple[Answer, ...] = ()) -> Leader:
    leader = Leader(*views, answers=answers)
    leader.servers = (LEADER, OTHER, NEW)
    return leader


def test_with_masters_a_move_asks_for_the_new_member_only_and_waits_until_the_old_one_is_gone() -> None:
    seen: list[ConfigView] = []
    ended = without_other(view(V, index=4))
    leader = with_masters(
        view(), view(), moving(P, 2), moving(P, 2), moving(V, 3), moving(V, 3), ended, answers=(None,)
    )
    result = moved(leader, on_progress=seen.append, timeout_s=1.0, wait_s=3600.0)
    assert result.changed and result.view.committed.member(OTHER) is None
    assert [type(one.change) for one in leader.asked] == [AddServer] and len(seen) == 6


def test_a_move_that_is_repeated_goes_on_and_one_that_is_complete_is_no_error() -> None:
    begun, ended = moving(V, 3), without_other(view(V, index=4))
    leader = with_masters(begun, begun, begun, ended)
    assert not moved(leader).changed and leader.asked == []
    assert not moved(with_masters(ended)).changed


def test_a_move_that_is_not_complete_in_time_says_what_is_left_and_who_does_it() -> None:
    with pytest.raises(
        DeadlineExceeded, match=f"not a voter yet: .* the masters then remove node {OTHER}, and the comm"
    ):
        moved(with_masters(moving(P, 2)), wait_s=0.0)
    with pytest.raises(
        DeadlineExceeded, match=r"has its vote, and node b+, which it replaces, is still a member; the mas"
    ):
        moved(with_masters(moving(V, 3)), wait_s=0.0)


def test_a_move_whose_new_member_is_gone_or_that_was_turned_back_is_not_waited_for() -> None:
    with pytest.raises(ReplicaGone, match="no member of tablet t any more"):
        moved(with_masters(moving(P, 2), moving(P, 2), view(index=3)))
    with pytest.raises(ChangeOvertaken, match=r"is not to replace node b+ any more"):
        moved(with_masters(moving(V, 3), moving(V, 3), view(V, index=4)))


def test_a_replica_that_never_votes_or_is_on_the_move_is_not_moved() -> None:
    never = with_type(view(), OTHER, N)
    with pytest.raises(MemberChangeRefused, match=r"a move makes a voter; instead: .* --type NON_VOTER"):
        moved(Leader(never))
    with pytest.raises(MemberChangeRefused, match=r"is being moved to new:1; wait for that, or end it first: "):
        run(Leader(moving(P, 2)).replicas.move(OTHER, "fourth:1", to="9" * 32))


def test_a_move_can_be_turned_back() -> None:
    begun = moving(V, 3)
    marked = msgspec.structs.replace(view(V, index=4).committed, members=swapped(begun))
    shown = msgspec.structs.replace(begun, config=marked, committed=marked)
    ended = msgspec.structs.replace(begun, config=config(OpId(1, 5)), committed=config(OpId(1, 5)))
    leader = with_masters(begun, begun, shown, shown, ended, answers=(None,))
    assert run(leader.replicas.move(NEW, "other:1", to=OTHER)).changed


def swapped(shown: ConfigView) -> tuple[Member, ...]:
    """The members if the one that is replaced replaces the new one."""
    places = {OTHER: NEW, NEW: msgspec.UNSET}
    return tuple(
        msgspec.structs.replace(m, replaces=places.get(m.node_id, m.replaces)) for m in shown.committed.members
    )


def with_type(shown: ConfigView, node: NodeId, kind: MemberType) -> ConfigView:
    members = (
        msgspec.structs.replace(m, member_type=kind) if m.node_id == node else m for m in shown.committed.members
    )
    other = msgspec.structs.replace(shown.committed, members=tuple(members))
    return msgspec.structs.replace(shown, config=other, committed=other)


def with_fourth(shown: ConfigView) -> ConfigView:
    fourth = Member(node_id=NodeId("9" * 32), address="fourth:1")
    larger = msgspec.structs.replace(shown.committed, members=(*shown.committed.members, fourth))
    return msgspec.structs.replace(shown, config=larger, committed=larger)
