"""A leader asks members without rows to copy them, and cancels that when a voter that was demoted is back."""

from __future__ import annotations

import msgspec
import pytest

from stelae.host.rows_for_witnesses import ASK_US, RETURNED_WAIT_US, RowsForWitnesses
from stelae.host.start_copy import CancelCopy, StartCopy
from stelae.spi.consensus import PeerProgress, Role, Status
from stelae.spi.ids import ZERO, NodeId
from stelae.spi.members import Member, MemberType, TabletConfig
from tests.unit.host.test_new_replica import BLOCK, LEADER, PEER, status

OLD = NodeId("c" * 32)


class Sent:
    """Notes the messages of a leader."""

    def __init__(self) -> None:
        self.messages: list[StartCopy | CancelCopy] = []
        self.rows = RowsForWitnesses(self._note, self._note)

    def _note(self, to: NodeId, message: StartCopy | CancelCopy) -> None:
        assert to == PEER
        self.messages.append(message)

    def at(self, now_us: int, leads: Status) -> list[StartCopy | CancelCopy]:
        """Look at a time; return what was sent then."""
        before = len(self.messages)
        self.rows.consider(leads, BLOCK, ZERO, now_us)
        return self.messages[before:]


def leader(member: MemberType = MemberType.WITNESS, *, log_only: bool = True, state: str = "REPLICATE") -> Status:
    peer = PeerProgress(node_id=PEER, match_index=9, next_index=10, state=state, in_flight=0, log_only=log_only)
    return msgspec.structs.replace(status(member), peers=(peer,))


def with_demoted(leads: Status, state: str) -> Status:
    demoted = Member(node_id=OLD, address="c:1", member_type=MemberType.NON_VOTER, was_voter=True)
    config = TabletConfig(op_id=leads.config.op_id, members=(*leads.config.members, demoted))
    peer = PeerProgress(node_id=OLD, match_index=9, next_index=10, state=state, in_flight=0)
    return msgspec.structs.replace(leads, config=config, peers=(*leads.peers, peer))


def test_a_witness_is_asked_to_copy_the_rows_only_again_and_again() -> None:
    sent = Sent()
    (asked,) = sent.at(0, leader())
    assert isinstance(asked, StartCopy) and asked.rows_only and asked.hosted
    assert (asked.to, asked.leader, asked.member_type) == (PEER, LEADER, MemberType.WITNESS)
    assert asked.sources[0].node_id == LEADER
    assert sent.at(ASK_US - 1, leader()) == []
    assert len(sent.at(ASK_US, leader())) == 1


@pytest.mark.parametrize(
    "leads",
    [
        leader(log_only=False),
        leader(MemberType.PRE_WITNESS),
        leader(state="PROBE"),
        leader(state="COPY"),
        msgspec.structs.replace(leader(), role=Role.FOLLOWER),
        msgspec.structs.replace(leader(), peers=()),
    ],
    ids=["has rows", "has no vote yet", "does not answer", "lacks the log", "no leader", "no peers"],
)
def test_nobody_else_is_asked(leads: Status) -> None:
    assert Sent().at(0, leads) == []


def test_a_leader_without_rows_has_none_to_offer() -> None:
    sent = Sent()
    sent.rows.consider(leader(), msgspec.structs.replace(BLOCK, log_only=True), ZERO, 0)
    assert sent.messages == []


def test_a_member_without_rows_is_asked_whatever_its_type() -> None:
    """As one that was a witness, was removed, and is added again as PRE_VOTER."""
    assert len(Sent().at(0, leader(MemberType.PRE_VOTER))) == 1


def test_the_copy_is_cancelled_when_the_voter_that_was_demoted_is_back() -> None:
    sent = Sent()
    assert isinstance(sent.at(0, with_demoted(leader(), "PROBE"))[0], StartCopy), "it is down"
    (cancelled,) = sent.at(ASK_US, with_demoted(leader(), "REPLICATE"))
    assert isinstance(cancelled, CancelCopy)
    assert (cancelled.term, cancelled.tablet_id) == (2, BLOCK.tablet_id)
    assert str(OLD) in cancelled.why and "change its role to VOTER" in cancelled.why


def test_a_voter_that_was_demoted_for_good_delays_the_rows_and_does_not_prevent_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The config does not say whether it was demoted because it was down, or to serve reads only."""
    sent, reader = Sent(), with_demoted(leader(), "REPLICATE")
    assert isinstance(sent.at(0, reader)[0], CancelCopy)
    assert "change its role to VOTER" in caplog.text and str(OLD) in caplog.text
    assert isinstance(sent.at(RETURNED_WAIT_US - 1, reader)[0], CancelCopy)
    (asked,) = sent.at(RETURNED_WAIT_US - 1 + ASK_US, reader)
    assert isinstance(asked, StartCopy) and asked.rows_only
    assert len(caplog.records) == 1


def test_a_demoted_voter_that_fails_again_and_again_does_not_extend_the_wait() -> None:
    sent = Sent()
    sent.at(0, with_demoted(leader(), "REPLICATE"))
    sent.at(RETURNED_WAIT_US // 2, with_demoted(leader(), "PROBE"))
    (asked,) = sent.at(RETURNED_WAIT_US, with_demoted(leader(), "REPLICATE"))
    assert isinstance(asked, StartCopy)


def test_a_voter_that_is_demoted_again_is_waited_for_again() -> None:
    sent = Sent()
    sent.at(0, with_demoted(leader(), "REPLICATE"))
    sent.at(ASK_US, leader())
    (cancelled,) = sent.at(RETURNED_WAIT_US, with_demoted(leader(), "REPLICATE"))
    assert isinstance(cancelled, CancelCopy)


def test_a_replica_for_reads_that_never_voted_cancels_nothing() -> None:
    leads = with_demoted(leader(), "REPLICATE")
    members = tuple(msgspec.structs.replace(member, was_voter=msgspec.UNSET) for member in leads.config.members)
    reader = msgspec.structs.replace(leads, config=msgspec.structs.replace(leads.config, members=members))
    assert isinstance(Sent().at(0, reader)[0], StartCopy)


def test_a_member_that_was_removed_and_added_again_is_asked_at_once() -> None:
    sent = Sent()
    assert len(sent.at(0, leader())) == 1
    sent.rows.config_changed(leader().config)
    assert sent.at(1, leader()) == []
    sent.rows.config_changed(status(None).config)
    assert len(sent.at(1, leader())) == 1
