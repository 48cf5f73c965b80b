"""Whether a member may have given votes and acknowledged entries: one rule for both messages that create a replica."""

from __future__ import annotations

import msgspec
import pytest

from stelae.host.member_promises import type_that_counts
from stelae.host.new_replica import NewReplica, new_replica
from stelae.host.start_copy import start_copy
from stelae.spi.consensus import CopyRequest
from stelae.spi.errors import Corrupt
from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import (
    JOINING,
    VOTING,
    AddServer,
    Member,
    MemberType,
    RemoveServer,
    TabletConfig,
    decode_config,
    encode_config,
    former_voters,
)
from stelae_consensus_raft.config_change_rules import Refusal, changed_members
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
    made = new_replica(BLOCK, leads, ZERO, PEER)
    if isinstance(made, NewReplica) and now.member_type is MemberType.PRE_WITNESS:
        assert made.log_only is not None and made.log_only.had_vote == voted, "it begins over its tombstone only"
    else:
        assert isinstance(made, NewReplica) != voted
    asked = start_copy(CopyRequest(peer=PEER, first_index=1, hosted=False), BLOCK, leads, ZERO)
    assert asked is not None and asked.member_type is counts, "the node refuses a copy to a voter without a replica"


def test_a_voter_that_was_removed_and_is_added_again_gets_no_empty_replica() -> None:
    """It may have lost its files meanwhile. A member that lags, and has an old config, still counts its vote."""
    before = config(peer(MemberType.VOTER))
    members = changed_members(before, RemoveServer(node_id=PEER))
    assert not isinstance(members, Refusal)
    removed = TabletConfig(op_id=OpId(2, 8), members=members, former_voters=former_voters(before, members))
    stored = decode_config(Entry(OpId(2, 8), EntryKind.CONFIG, 0, encode_config(removed)))
    assert stored == removed and stored.former_voters == (PEER,)
    for kind in JOINING:
        members = changed_members(stored, AddServer(node_id=PEER, address="b:1", member_type=kind))
        assert not isinstance(members, Refusal)
        again = TabletConfig(op_id=OpId(2, 9), members=members, former_voters=former_voters(stored, members))
        assert again.former_voters == ()
        leads = msgspec.structs.replace(status(None), config=again, committed_config=again)
        made = new_replica(BLOCK, leads, ZERO, PEER)
        if kind is MemberType.PRE_WITNESS:
            assert isinstance(made, NewReplica) and made.log_only is not None
            assert made.log_only.had_vote, "it begins over its tombstone only"
        else:
            assert isinstance(made, str)


def test_a_learner_that_was_removed_and_is_added_again_may_get_an_empty_replica() -> None:
    before = config(peer(MemberType.PRE_VOTER))
    members = changed_members(before, RemoveServer(node_id=PEER))
    assert not isinstance(members, Refusal) and former_voters(before, members) == ()
    demoted = config(peer(MemberType.NON_VOTER, was_voter=True))
    assert former_voters(demoted, members) == (PEER,), "one that was demoted had a vote"


@pytest.mark.parametrize("body", [b"", b"junk", msgspec.msgpack.encode({"members": []}), msgspec.msgpack.encode({})])
def test_a_body_that_is_no_config_is_corrupt(body: bytes) -> None:
    with pytest.raises(Corrupt, match="does not contain a config"):
        decode_config(Entry(OpId(1, 1), EntryKind.CONFIG, 0, body))


def test_a_config_without_former_voters_is_encoded_as_before() -> None:
    plain = config(peer(MemberType.VOTER))
    assert encode_config(plain) == msgspec.msgpack.encode(plain.members)


def test_a_node_that_is_no_member_gets_nothing() -> None:
    leads = msgspec.structs.replace(status(None), committed_config=config(peer(MemberType.PRE_VOTER)))
    assert type_that_counts(PEER, leads.config, leads.committed_config) is None
    assert isinstance(new_replica(BLOCK, leads, ZERO, PEER), str)
    assert start_copy(CopyRequest(peer=PEER, first_index=1, hosted=False), BLOCK, leads, ZERO) is None
