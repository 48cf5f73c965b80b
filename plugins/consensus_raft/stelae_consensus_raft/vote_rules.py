"""The rules by which a voter answers a vote request, and the tally of the answers.

Each rule prevents two leaders in one term, or a leader that lacks a committed entry (Raft paper, 5.2 and 5.4.1), or a
campaign that would disturb a working leader (Raft thesis, 4.2.3 and 9.6), or a leader that a recovery has left behind
(durability rule 29). Here they are functions without state.
``election`` and ``voter_core`` apply them."""

from __future__ import annotations

from dataclasses import dataclass, field

from stelae.spi.ids import NodeId, OpId
from stelae.spi.recovery_epoch import stands_down
from stelae_consensus_raft.messages import VoteRefusal, VoteRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterState:
    """What decides a vote on the voter's side."""

    term: int  #: The voter's term.
    voted_for: NodeId | None  #: The candidate that has the voter's vote of this term.
    last: OpId | None  #: The op id of the last entry of the voter's log; ``None`` if it does not know it.
    leader_alive: bool  #: True if the voter leads, or heard from a leader within one election timeout.


def decide_vote(request: VoteRequest, candidate: NodeId, voter: VoterState) -> VoteRefusal | None:
    """Decide a vote or pre-vote. Returns the reason of a refusal, or ``None`` to grant it.

    A vote request (not a pre-vote) of a later term takes the voter to that term, whether it is granted or not, except
    if it is refused as ``LEADER_ALIVE`` or ``LOG_UNKNOWN`` (see ``moves_to_term``)."""
    if voter.last is None:
        return VoteRefusal.LOG_UNKNOWN
    if stands_down(request.term, request.last.term):
        return VoteRefusal.OLD_EPOCH
    same_term = request.term == voter.term
    if same_term and voter.voted_for == candidate and not request.pre:
        # The voter repeats an answer that it has given, even if its candidate leads now.
        return None
    if voter.leader_alive and not request.transfer:
        return VoteRefusal.LEADER_ALIVE
    if request.term < voter.term:
        return VoteRefusal.STALE_TERM
    if same_term and voter.voted_for is not None:
        return VoteRefusal.VOTED
    if request.last < voter.last:
        return VoteRefusal.LOG_BEHIND
    return None


def moves_to_term(refusal: VoteRefusal | None) -> bool:
    """Return true if a vote request with this answer takes the voter to the request's term."""
    return refusal not in (VoteRefusal.LEADER_ALIVE, VoteRefusal.LOG_UNKNOWN)


@dataclass(slots=True, kw_only=True)
class VoteTally:
    """The answers to one campaign. A voter counts once, however often it answers (durability rule 9)."""

    term: int  #: The term of the campaign. In a pre-vote, the term that the campaign would have.
    pre: bool  #: True for a pre-vote.
    attempt: int  #: The number of the attempt; answers repeat it.
    granted: set[NodeId] = field(default_factory=set)
    refused: set[NodeId] = field(default_factory=set)

    def count(self, voter: NodeId, granted: bool) -> bool:
        """Add an answer. Returns false if this voter had answered already."""
        if voter in self.granted or voter in self.refused:
            return False
        (self.granted if granted else self.refused).add(voter)
        return True
