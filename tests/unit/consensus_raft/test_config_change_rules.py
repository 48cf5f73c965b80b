"""What the refusals of a change advise is possible, and leads to what was asked for."""

from __future__ import annotations

import msgspec
import pytest

from stelae.spi.ids import ZERO, NodeId
from stelae.spi.members import AddServer, ChangeRole, Member, MemberType, TabletConfig
from stelae_consensus_raft.config_change_rules import Refusal, changed_members, leaderless

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
