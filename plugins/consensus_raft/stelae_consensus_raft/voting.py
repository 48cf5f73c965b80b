"""Votes: what a voter answers, and what a candidate makes of the answers. No state is kept here.

The rules in one place, because each of them guards against two leaders in one term or against a
leader that lacks a committed entry (Raft paper, 5.2 and 5.4.1; thesis, 4.2.3 and 9.6)."""

from __future__ import annotations

from dataclasses import dataclass, field

from stelae.spi.ids import NodeId, OpId
from stelae_consensus_raft.messages import VoteRefusal, VoteRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Ballot:
    """What decides a vote: the voter's durable promises, its log, and whether a leader lives.

    ``last`` is ``None`` when the voter does not know where its log ended."""

    term: int
    voted_for: NodeId | None
    last: OpId | None
    leader_alive: bool


def judge(request: VoteRequest, candidate: NodeId, ballot: Ballot) -> VoteRefusal | None:
    """Decide a vote or pre-vote; ``None`` grants it.

    A request refused as ``LEADER_ALIVE`` or ``LOG_UNKNOWN`` does not even move the voter's term;
    any other vote (not pre-vote) of a later term does, whatever the answer."""
    if ballot.last is None:
        return VoteRefusal.LOG_UNKNOWN
    same_term = request.term == ballot.term
    if same_term and ballot.voted_for == candidate and not request.pre:
        # Asked again, a voter says the same again, also when its candidate leads by now.
        return None
    if ballot.leader_alive and not request.transfer:
        return VoteRefusal.LEADER_ALIVE
    if request.term < ballot.term:
        return VoteRefusal.STALE_TERM
    if same_term and ballot.voted_for is not None:
        return VoteRefusal.VOTED
    if request.last < ballot.last:
        return VoteRefusal.LOG_BEHIND
    return None


def moves_term(refusal: VoteRefusal | None) -> bool:
    """True if a vote request that was answered so takes the voter to the request's term."""
    return refusal not in (VoteRefusal.LEADER_ALIVE, VoteRefusal.LOG_UNKNOWN)


@dataclass(slots=True, kw_only=True)
class Tally:
    """Answers to one campaign. A voter counts once, however often it answers."""

    term: int
    pre: bool
    attempt: int
    granted: set[NodeId] = field(default_factory=set)
    refused: set[NodeId] = field(default_factory=set)

    def count(self, voter: NodeId, granted: bool) -> bool:
        """Note an answer; false if this voter had answered already."""
        if voter in self.granted or voter in self.refused:
            return False
        (self.granted if granted else self.refused).add(voter)
        return True
