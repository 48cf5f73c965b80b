"""Events for which nobody waits: held back by the driver, so they cost no turn of their own."""

from __future__ import annotations

import msgspec
import pytest

from stelae.spi.consensus_events import Campaign, Persisted, Proposal, Propose, ReadRequest, Received, Tick
from stelae.spi.ids import OpId
from stelae.spi.log import EntryKind
from stelae.spi.members import Member, MemberType
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.messages import AppendRefusal, AppendReply, VoteRequest
from tests.unit.consensus_raft.solo import ME, A, B, Solo, entries, members

ENTRY = OpId(2, 3)
"""The first one that is proposed."""


def proposed(**settings: int) -> tuple[Solo, int]:
    """A leader of three with one entry under way to both peers, not yet durable here; and its Ready."""
    solo = Solo(settings=RaftConfig(**settings)).serve()
    solo.ack(B)
    solo.holds = True
    (ready,) = solo.step(Propose((Proposal(1, EntryKind.WRITE, b"x"),)))
    return solo, ready.id


def acknowledged(sender: str = A, commit: int = 2, **more: object) -> Received:
    return Received(sender, AppendReply(term=2, match=ENTRY.index, commit=commit, **more), ())


def test_a_leaders_own_durability_waits_for_the_first_acknowledgement() -> None:
    solo, ready_id = proposed()
    assert solo.core.can_wait(Persisted(ready_id))
    solo.step(acknowledged())
    assert not solo.core.can_wait(Persisted(ready_id)), "it completes the majority"


def test_the_acknowledgement_that_completes_a_majority_does_not_wait() -> None:
    solo, ready_id = proposed()
    assert solo.core.can_wait(acknowledged()), "this replica itself is not durable yet"
    solo.step(Persisted(ready_id))
    assert not solo.core.can_wait(acknowledged())


def test_one_that_comes_after_the_commit_waits_unless_its_sender_is_to_hear_of_it() -> None:
    solo, ready_id = proposed()
    solo.step(Persisted(ready_id))
    solo.step(acknowledged(A))
    assert solo.core.status().commit == ENTRY.index
    assert not solo.core.can_wait(acknowledged(B)), "B may hear of the commit at once"
    assert solo.core.can_wait(acknowledged(B, commit=ENTRY.index)), "B knows it"


def test_one_that_makes_room_to_send_does_not_wait() -> None:
    solo, _ = proposed(in_flight_messages_max=1)
    solo.step(Propose((Proposal(2, EntryKind.WRITE, b"y"),)))
    assert not solo.core.can_wait(acknowledged())


def test_how_long_a_vote_took_to_save_is_measured_when_it_is_saved() -> None:
    solo = Solo()
    solo.holds = True
    (ready,) = solo.step(Received(A, VoteRequest(term=2, last=solo.core.status().last)))
    assert ready.hard_state is not None and not solo.core.can_wait(Persisted(ready.id))


def test_none_waits_while_a_read_does() -> None:
    solo, _ = proposed()
    solo.step(ReadRequest(7))
    assert not solo.core.can_wait(acknowledged(round=1))


@pytest.mark.parametrize(
    "reply",
    [AppendReply(term=3, match=0), AppendReply(term=2, refusal=AppendRefusal.MISMATCH, rejected=2, hint=OpId(1, 1))],
)
def test_what_is_out_of_the_ordinary_does_not_wait(reply: AppendReply) -> None:
    solo, _ = proposed()
    assert not solo.core.can_wait(Received(A, reply, ()))
    assert not solo.core.can_wait(Received("stranger", reply, ()))
    assert not solo.core.can_wait(Tick(solo.core._state.now_us))


def test_a_followers_durability_waits_and_a_candidates_does_not() -> None:
    solo = Solo()
    solo.holds = True
    solo.append(2, OpId(1, 1), *entries(2, 2, 2))
    assert solo.core.can_wait(Persisted(solo.fresh[-1].id))
    solo.step(Campaign(hinted=False))
    assert not solo.core.can_wait(Persisted(solo.fresh[-1].id)), "its own vote may be in it"


def test_none_waits_after_a_change_of_voters_which_may_confirm_a_read() -> None:
    """B has acknowledged the round of the read, and counts as soon as it is promoted, at the end of a turn."""
    joining = Member(node_id=B, address="node:1", member_type=MemberType.PRE_VOTER)
    two = members(ME, A, op_id=OpId(1, 1))
    solo = Solo(config=msgspec.structs.replace(two, members=(*two.members, joining))).serve()
    solo.step(Tick(1), ReadRequest(7))
    solo.holds = True
    ready = solo.ack(B, round_number=1)[-1]
    assert ready.append is not None and ready.append.entries[0].kind is EntryKind.CONFIG
    assert not any(one.reads_ready for one in solo.readies)
    assert not solo.core.can_wait(Persisted(ready.id))
    solo.step(Persisted(ready.id))
    assert any(one.reads_ready for one in solo.readies)
