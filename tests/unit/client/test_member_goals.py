"""Whether the config of a tablet is as an operator wants it, and how far a member has caught up."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stelae.client.member_goals import is_made, is_promoted, lag_text, unfinished_text
from stelae.spi.ids import ZERO, OpId
from stelae.spi.members import AddServer, ChangeRole, MemberChange, MemberType, RemoveServer
from tests.unit.client.member_views import LEADER, NEW, OTHER, config, view

V, P, N, W = MemberType.VOTER, MemberType.PRE_VOTER, MemberType.NON_VOTER, MemberType.WITNESS
PW = MemberType.PRE_WITNESS


def add(member_type: MemberType, address: str = "new:1") -> AddServer:
    return AddServer(node_id=NEW, address=address, member_type=member_type)


@pytest.mark.parametrize(
    ("change", "found", "made"),
    [
        (add(P), None, False),
        (add(P), P, True),
        (add(P), V, True),
        (add(P), W, False),
        (add(PW), PW, True),
        (add(PW), W, True),
        (add(PW), V, True),
        (add(PW), P, False),
        (add(P), N, False),
        (add(N), N, True),
        (add(N), V, False),
        (add(P, "moved:1"), V, False),
        (RemoveServer(node_id=NEW), None, True),
        (RemoveServer(node_id=NEW), N, False),
        (ChangeRole(node_id=NEW, member_type=V), None, False),
        (ChangeRole(node_id=NEW, member_type=V), P, False),
        (ChangeRole(node_id=NEW, member_type=V), V, True),
        (ChangeRole(node_id=NEW, member_type=P), V, True),
        (ChangeRole(node_id=NEW, member_type=N), V, False),
    ],
)
def test_a_change_is_made_if_the_config_is_as_it_would_be_afterwards(
    change: MemberChange, found: MemberType | None, made: bool
) -> None:
    assert is_made(change, config(OpId(1, 2), found)) is made


def test_only_a_committed_vote_counts_as_promoted() -> None:
    assert is_promoted(NEW, view(V)) and is_promoted(NEW, view(W))
    assert not is_promoted(NEW, view(P)) and not is_promoted(NEW, view(None))
    assert not is_promoted(NEW, view(P, pending=V))


def test_the_lag_in_words() -> None:
    assert lag_text(NEW, view(None)) == "not a member"
    assert lag_text(NEW, view(P, match=3)) == "PRE_VOTER, has entry 3 of 9"
    assert lag_text(LEADER, view(P)) == "VOTER, leads in term 1"
    assert lag_text(OTHER, view(P, role="FOLLOWER")) == "VOTER", "a follower does not know"


def test_a_member_that_is_sent_nothing_is_said_to_need_a_copy_only_where_the_log_lacks_something() -> None:
    """A new member whose replica was not created yet was said to need entries behind entry 0.0."""
    found = lag_text(NEW, view(P, state="COPY", log_base=OpId(1, 4)))
    assert found == "PRE_VOTER, needs a copy: the leader's log begins behind entry 1.4"
    assert "has no replica yet" in lag_text(NEW, view(P, state="COPY", log_base=ZERO))
    assert "has lost its replica" in lag_text(NEW, view(V, state="COPY", log_base=ZERO))


@pytest.mark.parametrize("log_base", [ZERO, OpId(1, 4)])
def test_a_former_voter_that_needs_a_copy_may_never_get_its_vote(log_base: OpId) -> None:
    """It was said that the leader goes on by itself. It fills no new directory of a node that had a vote."""
    plain = view(P, state="COPY", log_base=log_base)
    assert "the leader goes on by itself" in unfinished_text(NEW, None, plain)
    members = tuple(replace(one, was_voter=True) if one.node_id == NEW else one for one in plain.config.members)
    former = replace(plain, config=replace(plain.config, members=members))
    told = unfinished_text(NEW, None, former)
    assert "if it has lost that, remove this member, and add one with a new uuid. Otherwise the leader goes on" in told
    follows = replace(former, progress=view(P, match=3).progress)
    assert "has entry 3 of 9; the leader goes on by itself" in unfinished_text(NEW, None, follows)
