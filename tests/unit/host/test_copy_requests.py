"""What a leader does for a peer that needs a copy: an empty replica, or a copy from a source that is alive."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from stelae.client.messenger_ports import QuietMetrics
from stelae.host.copy_requests import CopyRequests
from stelae.host.new_replica import NewReplica
from stelae.host.start_copy import StartCopy, start_copy
from stelae.host.superblock import Superblock
from stelae.spi.consensus import CopyRequest, PeerProgress, Status
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.members import Member, MemberType, TabletConfig
from tests.unit.host.test_new_replica import BLOCK, LEADER, PEER, status

THIRD, FOURTH = NodeId("c" * 32), NodeId("d" * 32)
BASE = OpId(1, 4)


class Sent:
    """Notes the messages of a leader."""

    def __init__(self, block: Superblock = BLOCK) -> None:
        self._block = block
        self.messages: list[NewReplica | StartCopy] = []
        self.requests = CopyRequests(self._note, self._note, QuietMetrics())

    def _note(self, to: NodeId, message: NewReplica | StartCopy) -> None:
        assert to == PEER
        self.messages.append(message)

    def handle(self, base: OpId, leads: Status, **changed: Any) -> NewReplica | StartCopy | None:
        before = len(self.messages)
        self.requests.handle(CopyRequest(PEER, 3, **changed), self._block, leads, base)
        return self.messages[-1] if len(self.messages) > before else None


def with_peers(leads: Status, **states: str) -> Status:
    """The status of a leader with two more voters, in these states of replication."""
    more = (Member(node_id=THIRD, address="c:1"), Member(node_id=FOURTH, address="d:1"))
    config = TabletConfig(op_id=leads.config.op_id, members=(*leads.config.members, *more))
    peers = tuple(
        PeerProgress(node_id=NodeId(name * 32), match_index=1, next_index=2, state=state, in_flight=0)
        for name, state in states.items()
    )
    return msgspec.structs.replace(leads, config=config, peers=peers)


def test_a_peer_whose_log_ends_below_that_of_the_leader_is_asked_to_copy_from_those_who_are_well() -> None:
    leads = with_peers(status(MemberType.VOTER), b="COPY", c="REPLICATE", d="PROBE")
    found = Sent().handle(BASE, leads)
    assert isinstance(found, StartCopy)
    assert (found.to, found.leader, found.term, found.hosted) == (PEER, LEADER, 2, True)
    assert (found.config, found.log_base, found.member_type) == (OpId(2, 7), BASE, MemberType.VOTER)
    assert [source.node_id for source in found.sources] == [LEADER, THIRD]
    assert (found.table_name, found.consensus, found.last) == ("table", "raft", None)


@pytest.mark.parametrize("log_only", [True, False])
def test_a_witness_that_leads_is_a_source_once_it_has_rows(log_only: bool) -> None:
    """Its rows arrived, and the leader failed before it made it a VOTER. The voter that is left has lost its replica.

    The witness serves no requests itself, so without the copy the rows would be out of reach."""
    leads = status(MemberType.VOTER)
    own, peer = leads.config.members
    members = (msgspec.structs.replace(own, member_type=MemberType.WITNESS), peer)
    leads = msgspec.structs.replace(leads, config=msgspec.structs.replace(leads.config, members=members))
    block = msgspec.structs.replace(BLOCK, log_only=log_only)
    found = start_copy(CopyRequest(PEER, 1, hosted=False), block, leads, BASE)
    assert (found is None) == log_only
    assert found is None or [source.node_id for source in found.sources] == [LEADER]


@pytest.mark.parametrize("member", [MemberType.PRE_VOTER, MemberType.NON_VOTER])
def test_a_new_member_gets_an_empty_replica_and_a_copy_in_turn_until_it_has_one(member: MemberType) -> None:
    """A node with a tombstone refuses the empty replica; it was asked for one again and again, and never joined."""
    sent = Sent()
    kinds = [type(sent.handle(ZERO, status(member), hosted=False)) for _ in range(4)]
    assert kinds == [NewReplica, StartCopy, NewReplica, StartCopy]
    assert isinstance(sent.messages[1], StartCopy) and not sent.messages[1].hosted


def test_where_the_log_was_collected_a_new_member_is_copied_at_once() -> None:
    sent = Sent()
    for _ in range(2):
        assert isinstance(sent.handle(BASE, status(MemberType.PRE_VOTER), hosted=False), StartCopy)


def test_a_voter_without_a_replica_gets_no_empty_one() -> None:
    """Its node refuses the copy, too, unless it has a tombstone (rule 19)."""
    sent = Sent()
    for _ in range(2):
        assert isinstance(sent.handle(ZERO, status(MemberType.VOTER), hosted=False), StartCopy)


@pytest.mark.parametrize("hosted", [True, False])
def test_a_former_member_gets_no_copy(hosted: bool) -> None:
    assert Sent().handle(BASE, status(None), hosted=hosted) is None


def test_a_witness_without_a_replica_gets_one_without_rows_and_one_that_lacks_entries_is_copied() -> None:
    """A node with a tombstone refuses the one without rows. A node without one refuses the copy."""
    sent = Sent()
    kinds = [type(sent.handle(BASE, status(MemberType.PRE_WITNESS), hosted=False)) for _ in range(4)]
    assert kinds == [NewReplica, StartCopy, NewReplica, StartCopy]
    for member in (MemberType.PRE_WITNESS, MemberType.WITNESS):
        assert isinstance(sent.handle(BASE, status(member)), StartCopy)


def test_a_caretaker_that_reaches_no_voter_asks_for_no_copy_as_there_is_no_source() -> None:
    leads = with_peers(status(MemberType.VOTER), b="COPY", c="PROBE")
    members = tuple(
        msgspec.structs.replace(one, member_type=MemberType.WITNESS) if one.node_id == LEADER else one
        for one in leads.config.members
    )
    config = msgspec.structs.replace(leads.config, members=members)
    without_rows = msgspec.structs.replace(BLOCK, log_only=True)
    sent, caretaker = Sent(without_rows), msgspec.structs.replace(leads, config=config)
    assert sent.handle(BASE, caretaker) is None
    healthy = (msgspec.structs.replace(caretaker.peers[1], state="REPLICATE"),)
    found = sent.handle(BASE, msgspec.structs.replace(caretaker, peers=healthy))
    assert isinstance(found, StartCopy) and [source.node_id for source in found.sources] == [THIRD]


def test_a_copy_that_is_needed_is_logged_once_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    sent, learner = Sent(), status(MemberType.PRE_VOTER)
    with caplog.at_level(logging.INFO):
        for base in (BASE, BASE, OpId(1, 5)):
            sent.handle(base, learner, hosted=False)
        sent.handle(BASE, learner)
    assert len(caplog.records) == 3 and len(sent.messages) == 4


def test_a_vote_that_a_pending_change_takes_away_counts_until_the_change_is_committed() -> None:
    """Members that do not know the change count it. So the node must not get a replica that has forgotten it."""
    leads = status(MemberType.NON_VOTER)
    voter = Member(node_id=PEER, address="b:1")
    before = msgspec.structs.replace(leads.config, members=(leads.config.members[0], voter))
    found = Sent().handle(BASE, msgspec.structs.replace(leads, committed_config=before), hosted=False)
    assert isinstance(found, StartCopy) and found.member_type is MemberType.VOTER


def test_a_voter_that_was_demoted_and_has_lost_its_replica_gets_no_new_one() -> None:
    leads = status(MemberType.NON_VOTER)
    demoted = Member(node_id=PEER, address="b:1", member_type=MemberType.NON_VOTER, was_voter=True)
    config = msgspec.structs.replace(leads.config, members=(leads.config.members[0], demoted))
    found = Sent().handle(ZERO, msgspec.structs.replace(leads, config=config, committed_config=config), hosted=False)
    assert isinstance(found, StartCopy) and found.member_type is MemberType.VOTER, "the node refuses it"


def test_a_member_that_was_removed_and_added_again_is_asked_as_a_new_one(caplog: pytest.LogCaptureFixture) -> None:
    """It was asked for a copy first, and the second request for a copy was not logged."""
    sent, learner = Sent(), status(MemberType.PRE_VOTER)
    removed = status(None).config
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            assert isinstance(sent.handle(ZERO, learner, hosted=False), NewReplica)
            sent.requests.config_changed(learner.config)
            sent.requests.config_changed(removed)
        for _ in range(2):
            assert isinstance(sent.handle(BASE, learner), StartCopy)
            sent.requests.config_changed(learner.config)
        assert len(caplog.records) == 1, "it was a member all the time"
        sent.requests.config_changed(removed)
        assert isinstance(sent.handle(BASE, learner), StartCopy)
    assert len(caplog.records) == 2
