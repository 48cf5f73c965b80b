"""Whether a member may have given votes and acknowledged entries: one rule for both messages that create a replica."""

from __future__ import annotations

import msgspec
import pytest

from stelae.host.member_promises import type_that_counts
from stelae.host.new_replica import NewReplica, new_replica
from stelae.host.start_copy import start_copy
from stelae.spi.consensus import CopyRequest
from stelae.spi.ids import ZERO, OpId
from stelae.spi.members import VOTING, Member, MemberType, TabletConfig
from tests.unit.host.test_new_replica import BLOCK, LEADER, PEER, status


def config(member: Member | None) -> TabletConfig:
    members = (Member(node_id=LEADER, address="a:1"), *(() if member is None else (member,)))
    return TabletConfig(op_id=OpId(2, 7), members=members)


def peer(kind: MemberType | None, *, was_voter: bool = False) -> Member | None:
    if kind is None:
        return None
    mark = True if was_voter else msgspec.UNSET
    return Member(node_id=PEER, address="b:1", member_type=kind, was_voter=mark)


CASES = [
    (peer(now, was_voter=mark), peer(before))
    for now in MemberType
    for before in (None, *MemberType)
    for mark in (False, True)
]


@pytest.mark.parametrize(("now", "before"), CASES)
def test_a_member_that_has_or_had_a_vote_gets_no_empty_replica_from_either_message(
    now: Member, before: Member | None
) -> None:
    voted = now.member_type in VOTING or now.was_voter is True or (before is not None and before.member_type in VOTING)
    counts = type_that_counts(PEER, config(now), config(before))
    assert (counts in VOTING) == voted and (voted or counts is now.member_type)
    leads = msgspec.structs.replace(status(None), config=config(now), committed_config=config(before))
    assert isinstance(new_replica(BLOCK, leads, ZERO, PEER), NewReplica) != voted
    asked = start_copy(CopyRequest(peer=PEER, first_index=1, hosted=False), BLOCK, leads, ZERO)
    assert asked is not None and asked.member_type is counts, "the node refuses a copy to a voter without a replica"


def test_a_node_that_is_no_member_gets_nothing() -> None:
    leads = msgspec.structs.replace(status(None), committed_config=config(peer(MemberType.PRE_VOTER)))
    assert type_that_counts(PEER, leads.config, leads.committed_config) is None
    assert isinstance(new_replica(BLOCK, leads, ZERO, PEER), str)
    assert start_copy(CopyRequest(peer=PEER, first_index=1, hosted=False), BLOCK, leads, ZERO) is None
