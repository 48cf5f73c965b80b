"""When the config of a stopped node may be rewritten, and by which changes."""

from __future__ import annotations

import pytest

from stelae.lifecycle.config_rewrite import WantedMember, changes_to
from stelae.spi.errors import MemberChangeRefused
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.members import AddServer, Member, MemberType, RemoveServer, TabletConfig

A, B, C, D = (NodeId(letter * 32) for letter in "abcd")
VOTER, PRE_VOTER = MemberType.VOTER, MemberType.PRE_VOTER


def member(node: NodeId, kind: MemberType = VOTER, address: str = "") -> Member:
    return Member(node_id=node, address=address or f"{node[0]}:1", member_type=kind)


def config(*members: Member, op_id: OpId = OpId(2, 7), former: tuple[NodeId, ...] = ()) -> TabletConfig:
    return TabletConfig(op_id=op_id, members=members, former_voters=former)


def wanted(*nodes: NodeId, **addresses: str) -> list[WantedMember]:
    return [WantedMember(node, addresses.get(node[0], f"{node[0]}:1")) for node in nodes]


ALONE = config(member(A))


def refusal(
    asked: list[WantedMember], own: NodeId = A, now: TabletConfig = ALONE, committed: TabletConfig | None = None
) -> str:
    with pytest.raises(MemberChangeRefused) as refused:
        changes_to(asked, own, now, committed or now)
    assert str(refused.value).endswith("nothing was changed")
    return str(refused.value)


def test_one_becomes_the_first_of_three_and_the_new_ones_have_no_vote() -> None:
    first, second = changes_to(wanted(B, A, C), A, ALONE, ALONE)
    assert first == AddServer(node_id=B, address="b:1") and second == AddServer(node_id=C, address="c:1")
    assert isinstance(first, AddServer) and first.member_type is PRE_VOTER and not first.pinned


def test_the_own_address_becomes_a_name_with_the_same_command() -> None:
    found = changes_to(wanted(A, a="master-1:1"), A, ALONE, ALONE)
    assert found == [AddServer(node_id=A, address="master-1:1")]


def test_what_holds_already_needs_no_change_so_the_command_can_be_repeated() -> None:
    done = config(member(A), member(B, PRE_VOTER), member(C, PRE_VOTER))
    assert changes_to(wanted(A, B, C), A, done, done) == []
    half = config(member(A), member(B, PRE_VOTER))
    assert changes_to(wanted(A, B, C), A, half, ALONE) == [AddServer(node_id=C, address="c:1")]


def test_a_replacement_gets_the_name_of_a_member_that_is_removed_first() -> None:
    now = config(member(A), member(B, PRE_VOTER), member(C, PRE_VOTER))
    found = changes_to(wanted(A, B, D, d="c:1"), A, now, now)
    assert found == [RemoveServer(node_id=C), AddServer(node_id=D, address="c:1")]


@pytest.mark.parametrize("kind", [VOTER, MemberType.WITNESS])
def test_other_voters_forbid_it_whether_their_config_is_committed_or_not(kind: MemberType) -> None:
    shared = config(member(A), member(B, kind), op_id=OpId(3, 9))
    for now, committed in ((shared, shared), (shared, ALONE), (ALONE, shared)):
        said = refusal(wanted(A, C, D), now=now, committed=committed)
        assert f"has other voters: b:1 ({B})" in said
        assert "stelae master add" in said and "stelae recover plan --masters" in said


def test_a_removed_master_and_one_that_never_led_are_refused() -> None:
    others = config(member(B), member(C))
    assert "does not list this node" in refusal(wanted(A), now=others)
    never = config(member(A), op_id=ZERO)
    assert "never led" in refusal(wanted(A, B, C), now=never) and "[masters]" in refusal(wanted(A, B, C), now=never)


def test_one_of_the_first_voters_that_has_heard_of_no_leader_yet_is_no_proof_that_none_led() -> None:
    """It was told to begin the cluster anew, although the others may have begun it."""
    first = config(member(A), member(B), member(C), op_id=ZERO)
    said = refusal(wanted(A), now=first)
    assert "has other voters" in said and "never led" not in said


def test_a_list_that_is_no_config_is_refused() -> None:
    assert f"uuid {B} is given 2 times" in refusal(wanted(A, B, B))
    assert "address b:1 is given 2 times" in refusal(wanted(A, B, C, c="b:1"))
    assert "is not among the members" in refusal(wanted(B, C, D))
    assert "is not among the members" in refusal([])
    assert "2 masters tolerate no more failures than 1" in refusal(wanted(A, B))


def test_a_uuid_that_had_a_vote_never_comes_back_with_an_empty_directory() -> None:
    gone = config(member(A), former=(C,))
    assert f"node {C} had a vote once" in refusal(wanted(A, B, C), now=gone)
    demoted = Member(node_id=B, address="b:1", member_type=MemberType.NON_VOTER, was_voter=True)
    assert f"node {B} had a vote once" in refusal(wanted(A, B, D), now=config(member(A), demoted))
