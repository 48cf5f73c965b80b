"""The core of a tombstone: it votes as its log once allowed, and hosts nothing (rule 19)."""

from __future__ import annotations

import pytest

from stelae.spi.consensus import ConsensusCore, HardState, Ready
from stelae.spi.consensus_events import (
    LeaderAlive,
    MergeMetadata,
    Proposal,
    Propose,
    ReadRequest,
    Received,
    StepDown,
    Tick,
)
from stelae.spi.ids import NodeId, OpId
from stelae.spi.log import EntryKind
from stelae.spi.recovery_epoch import EPOCHS_AHEAD_MAX, first_term
from stelae_consensus_raft import RaftEngine
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.messages import (
    AppendEntries,
    AppendRefusal,
    AppendReply,
    VoteRefusal,
    VoteReply,
    VoteRequest,
)
from tests.unit.consensus_raft.solo import ME, T_US, A, B, entries


def voter(last: OpId | None = OpId(2, 5), term: int = 3) -> ConsensusCore:
    return RaftEngine.restore_voter(
        node_id=ME, hard_state=HardState(term, None), last=last, config=RaftConfig(), now_us=0
    )


def stepped(core: ConsensusCore, *events: object) -> Ready | None:
    core.step(events)  # type: ignore[arg-type]
    core.validate_state()
    return core.take_ready()


def asked(core: ConsensusCore, term: int, last: OpId, pre: bool = False) -> VoteReply:
    ready = stepped(core, Received(A, VoteRequest(term=term, last=last, pre=pre)))
    assert ready is not None
    (sent,) = ready.at_once + ready.after_persist
    assert isinstance(sent.message, VoteReply)
    return sent.message


def test_it_votes_durably_and_once_per_term() -> None:
    core = voter()
    ready = stepped(core, Received(A, VoteRequest(term=4, last=OpId(2, 5))))
    assert ready is not None and ready.hard_state == HardState(4, A)
    assert ready.after_persist and not ready.at_once
    ready = stepped(core, Received(B, VoteRequest(term=4, last=OpId(3, 9))))
    assert ready is not None
    (sent,) = ready.at_once
    assert isinstance(sent.message, VoteReply) and sent.message.refusal is VoteRefusal.VOTED


def test_it_refuses_a_candidate_behind_the_log_that_it_once_had() -> None:
    core = voter()
    assert asked(core, 4, OpId(2, 4)).refusal is VoteRefusal.LOG_BEHIND
    assert core.status().term == 4


def test_an_unknown_log_never_votes_and_its_term_stands() -> None:
    core = voter(last=None)
    assert asked(core, 9, OpId(3, 9)).refusal is VoteRefusal.LOG_UNKNOWN
    assert asked(core, 9, OpId(3, 9), pre=True).refusal is VoteRefusal.LOG_UNKNOWN
    assert core.status().term == 3


def test_it_withholds_while_a_leader_is_heard() -> None:
    core = voter()
    core.step([LeaderAlive(B, 3, 100), Tick(T_US)])
    assert asked(core, 4, OpId(3, 9)).refusal is VoteRefusal.LEADER_ALIVE
    core.step([Tick(T_US + 100)])
    assert asked(core, 4, OpId(3, 9)).refusal is None


def test_a_leader_is_told_that_nothing_is_hosted_once_its_term_is_durable() -> None:
    core = voter()
    append = AppendEntries(term=5, prev=OpId(2, 5), commit=5, round=2)
    ready = stepped(core, Received(A, append, entries(6, 5)))
    assert ready is not None and ready.append is None
    assert ready.hard_state == HardState(5, None)
    (sent,) = ready.after_persist
    assert sent.message == AppendReply(term=5, round=2, refusal=AppendRefusal.NOT_HOSTED, rejected=5)
    ready = stepped(core, Received(B, AppendEntries(term=4, prev=OpId(2, 5), commit=0)))
    assert ready is not None
    assert ready.at_once[0].message.refusal is AppendRefusal.STALE_TERM


def test_it_serves_nobody_and_needs_no_time() -> None:
    core = voter()
    proposal = Proposal(1, EntryKind.WRITE, b"x")
    ready = stepped(core, Propose((proposal,)), ReadRequest(2), StepDown())
    assert ready is not None
    assert [(r.token, r.reason) for r in ready.rejections] == [(1, "NOT_LEADER"), (2, "NOT_LEADER")]
    assert core.next_deadline() is None
    assert stepped(core, Tick(10**12)) is None


def test_messages_that_a_voter_does_not_take_are_counted() -> None:
    core = voter()
    core.step([Received(A, VoteReply(term=3, campaign_term=3))])
    core.step([Received(ME, VoteRequest(term=9, last=OpId(3, 9)))])
    core.step([Received(A, VoteRequest(term=1, last=OpId(5, 5)))])
    assert core.take_ready() is None
    assert sum(core.refused.values()) == 3


@pytest.mark.parametrize("vote", [None, A])
@pytest.mark.parametrize("source_term", [2, 3, 4])
def test_the_term_of_the_source_of_a_copy_is_merged_and_its_vote_never(vote: NodeId | None, source_term: int) -> None:
    """T3, rule 20: only a higher term changes anything, and it begins without a vote."""
    core = RaftEngine.restore_voter(
        node_id=ME, hard_state=HardState(3, vote, 7), last=OpId(2, 5), config=RaftConfig(), now_us=0
    )
    ready = stepped(core, Tick(1), MergeMetadata(source_term))
    assert (ready.hard_state if ready is not None else None) == (HardState(4, None, 7) if source_term > 3 else None)
    assert core.status().term == max(3, source_term)
    assert asked(core, 3, OpId(2, 5)).refusal is not None or vote == A


def test_a_vote_after_a_merge_counts_in_the_merged_term() -> None:
    core = voter()
    stepped(core, MergeMetadata(9))
    assert asked(core, 8, OpId(7, 70)).refusal is VoteRefusal.STALE_TERM
    assert asked(core, 9, OpId(7, 70)).refusal is None


@pytest.mark.parametrize("what", ["a candidate", "an append"])
def test_a_term_that_no_recovery_can_have_reached_is_not_entered(what: str) -> None:
    def message(term: int) -> Received:
        if what == "a candidate":
            return Received(A, VoteRequest(term=term, last=OpId(2, 5)))
        return Received(A, AppendEntries(term=term, prev=OpId(2, 5), commit=5))

    core = voter()
    assert stepped(core, Tick(1), message(first_term(EPOCHS_AHEAD_MAX + 1, 0))) is None
    assert core.status().term == 3 and sum(core.refused.values()) == 1
    stepped(core, message(first_term(EPOCHS_AHEAD_MAX, 0)))
    assert core.status().term == first_term(EPOCHS_AHEAD_MAX, 0)
