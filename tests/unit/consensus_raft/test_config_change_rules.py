"""What the refusals of a change advise is possible, and leads to what was asked for; and the marks of a move."""

from __future__ import annotations

import msgspec
import pytest

from stelae.spi.ids import ZERO, NodeId
from stelae.spi.members import AddServer, ChangeRole, Member, MemberChange, MemberType, RemoveServer, TabletConfig
from stelae.spi.rejections import RejectReason
from stelae_consensus_raft.config_change_rules import Refusal, changed_members, leaderless, rows_at_risk

V, P, N, PW, W = (
    MemberType.VOTER,
    MemberType.PRE_VOTER,
    MemberType.NON_VOTER,
    MemberType.PRE_WITNESS,
    MemberType.WITNESS,
)
NODE = NodeId("c" * 32)


def config(member_type: MemberType) -> TabletConfig:
    member = Member(node_id=NODE, address="c:1", member_type=member_type)
    return TabletConfig(op_id=ZERO, members=(member,))


def advice(refusal: object) -> str:
    assert isinstance(refusal, Refusal)
    return refusal.detail.partition("; ")[2]


@pytest.mark.parametrize(
    ("present", "wanted", "advised"),
    [
        (N, P, "change its role to PRE_VOTER instead"),
        (V, N, "change its role to NON_VOTER instead"),
        (N, PW, "remove it, then add it as a witness"),
        (W, P, "wait: the leader makes it a VOTER once it has all rows"),
    ],
)
def test_a_member_that_is_added_as_another_type_is_refused_with_what_is_possible(
    present: MemberType, wanted: MemberType, advised: str
) -> None:
    """The advice was always to change its role. No change of role makes a witness of a NON_VOTER."""
    change = AddServer(node_id=NODE, address="c:1", member_type=wanted)
    assert advice(changed_members(config(present), change)) == advised


@pytest.mark.parametrize(
    ("present", "wanted", "advised"),
    [
        (V, P, "first make it one of: NON_VOTER"),
        (N, W, "remove it, then add it as a witness"),
        (W, N, "wait: the leader makes it a VOTER once it has all rows"),
    ],
)
def test_a_role_that_is_impossible_is_refused_with_what_leads_there(
    present: MemberType, wanted: MemberType, advised: str
) -> None:
    change = ChangeRole(node_id=NODE, member_type=wanted)
    assert advice(changed_members(config(present), change)) == advised


@pytest.mark.parametrize(
    ("left", "advised"),
    [
        (N, f"make node {NODE} a VOTER first"),
        (P, f"wait until node {NODE} is a VOTER"),
        (W, f"wait until node {NODE} is a VOTER"),
        (None, "add another member and wait until it is a VOTER"),
    ],
)
def test_a_tablet_without_a_leader_is_refused_with_the_member_that_could_lead(
    left: MemberType | None, advised: str
) -> None:
    only = Member(node_id=NodeId("a" * 32), address="a:1")
    others = () if left is None else config(left).members
    before = TabletConfig(op_id=ZERO, members=(only, *others))
    demoted = msgspec.structs.replace(only, member_type=MemberType.NON_VOTER)
    assert advice(leaderless(before, others)) == advice(leaderless(before, (demoted, *others))) == advised


A, B, C, D = (NodeId(letter * 32) for letter in "abcd")


def members(*ids: NodeId, **replaced: NodeId) -> TabletConfig:
    """A config of voters; ``replaced`` has the members that replace others, by their letters."""
    places = {NodeId(letter * 32): place for letter, place in replaced.items()}
    found = (Member(node_id=n, address=f"{n[0]}:1", replaces=places.get(n, msgspec.UNSET)) for n in ids)
    return TabletConfig(op_id=ZERO, members=tuple(found))


def places(config: TabletConfig, change: MemberChange) -> dict[NodeId, object]:
    found = changed_members(config, change)
    assert not isinstance(found, Refusal), found
    return {member.node_id: member.replaces for member in found if member.replaces is not msgspec.UNSET}


def moved(node: NodeId, replaced: NodeId) -> AddServer:
    return AddServer(node_id=node, address=f"{node[0]}:1", replaces=replaced)


def test_a_member_is_added_in_place_of_another_one_only_while_that_is_a_member() -> None:
    assert places(members(A, B, C), moved(D, C)) == {D: C}
    for replaced in (D, NodeId("f" * 32)):
        refused = changed_members(members(A, B, C), moved(D, replaced))
        assert isinstance(refused, Refusal) and refused.reason is RejectReason.NOT_A_MEMBER


def test_a_move_that_is_asked_for_again_is_done_also_after_its_end() -> None:
    for config in (members(A, B, C, D, d=C), members(A, B, D)):
        refused = changed_members(config, moved(D, C))
        assert isinstance(refused, Refusal) and refused.reason is RejectReason.NO_CHANGE


def test_a_member_can_be_given_the_place_of_another_one_but_not_its_own() -> None:
    assert places(members(A, B, C, D), moved(D, C)) == {D: C}
    assert places(members(A, B, C, D, d=C), moved(D, B)) == {D: B}
    refused = changed_members(members(A, B, C, D), moved(D, D))
    assert isinstance(refused, Refusal) and refused.reason is RejectReason.NO_CHANGE


def test_a_move_back_swaps_the_mark_so_that_no_two_members_replace_each_other() -> None:
    assert places(members(A, B, C, D, d=C), moved(C, D)) == {C: D}


def test_of_two_that_replace_a_member_one_gets_its_place() -> None:
    assert places(members(A, B, C, D, b=A, c=B, d=B), RemoveServer(node_id=B)) == {C: A}


def test_a_member_never_gets_its_own_place() -> None:
    assert places(members(A, B, C, b=C, c=B), RemoveServer(node_id=C)) == {}


def test_the_mark_of_a_member_goes_with_it() -> None:
    assert places(members(A, B, C, D, d=C), RemoveServer(node_id=D)) == {}


@pytest.mark.parametrize(
    ("before", "after", "behind", "refused"),
    [
        ({1: V, 2: V, 3: V, 4: W}, {1: V, 3: V, 4: W}, {3}, True),
        ({1: V, 2: V, 3: V, 4: W}, {1: V, 2: N, 3: V, 4: W}, {3}, True),
        ({1: V, 2: V, 3: V, 4: W}, {1: V, 2: V, 4: W}, {3}, False),
        ({1: V, 2: V, 3: V, 4: W}, {1: V, 3: V, 4: W}, {}, False),
        ({1: V, 2: V, 3: V, 4: PW}, {1: V, 2: V, 3: V, 4: W}, {3}, False),
        ({1: V, 2: V, 3: V, 4: W, 5: PW}, {1: V, 2: V, 3: V, 4: W, 5: W}, {3}, True),
        ({1: V, 3: V, 4: W}, {1: V, 3: V, 4: W, 5: P}, {3}, False),
        ({1: V, 3: V, 4: W}, {1: V, 3: V, 4: V}, {3}, False),
        ({1: V, 2: V, 3: V}, {1: V, 3: V}, {3}, False),
        ({1: V, 2: V, 4: W, 5: W}, {1: V, 4: W, 5: W}, {}, False),
    ],
)
def test_a_voter_that_lags_below_the_log_of_a_witness_needs_others_that_can_be_lost(
    before: dict[int, MemberType], after: dict[int, MemberType], behind: set[int], refused: bool
) -> None:
    refusal = rows_at_risk(of(before), of(after).members, lambda node: int(node, 16) not in behind, lambda _: False)
    assert (refusal is not None) is refused
    if refusal is not None:
        assert refusal.reason is RejectReason.NOT_CAUGHT_UP and f"{3:032x}" in refusal.detail


@pytest.mark.parametrize(
    ("after", "silent", "refused"),
    [
        ({1: V, 3: V, 4: W, 5: W}, {2, 3}, False),
        ({1: V, 3: V, 4: W, 5: W}, {2}, True),
        ({1: V, 3: V, 4: W, 5: W}, {3}, False),
        ({2: V, 3: V, 4: W, 5: W}, {2, 3}, True),
        ({1: V, 2: V, 3: V, 4: W, 5: W, 6: W}, {2, 3}, True),
    ],
)
def test_a_voter_that_lags_may_go_if_the_others_that_lag_are_silent(
    after: dict[int, MemberType], silent: set[int], refused: bool
) -> None:
    before = of({1: V, 2: V, 3: V, 4: W, 5: W})
    has_reached, is_silent = (lambda node: int(node, 16) == 1), (lambda node: int(node, 16) in silent)
    assert (rows_at_risk(before, of(after).members, has_reached, is_silent) is not None) is refused


def of(members: dict[int, MemberType]) -> TabletConfig:
    found = (Member(node_id=NodeId(f"{n:032x}"), address="c:1", member_type=kind) for n, kind in members.items())
    return TabletConfig(op_id=ZERO, members=tuple(found))
