"""Both sides of an election: when to campaign, what to answer, when it is won or lost.

A campaign has two phases. The *pre-vote* asks whether a vote would be given and changes nothing
anywhere; only if a majority says yes does the *vote* follow, in a new term. The candidate's own
vote counts like any other: once it is durable.

Waiting times: a follower campaigns after T to 2T of silence, drawn anew each time. A campaign that
was refused or split is repeated after T/10 to T/2: the next attempt should not cost another 2T. One
that nobody answered is repeated after T to 2T: there is nobody to hurry for.

Patience: an answer to an attempt that was given up already shows that this replica gives up sooner than its peers can
answer, as all do on a machine that is overloaded. Each such attempt doubles the waits, up to sixteenfold, until there
is a leader; without it a hundred tablets would campaign for ever, and keep the machine busy with that. A disk may be
what is slow: nobody campaigns while the last term or vote is not durable here, nor for as long again as that took.
"""

from __future__ import annotations

from stelae.spi.consensus import Role
from stelae.spi.ids import NodeId
from stelae_consensus_raft.leader import Leader
from stelae_consensus_raft.messages import VoteReply, VoteRequest
from stelae_consensus_raft.replica import Replica
from stelae_consensus_raft.transitions import Cause
from stelae_consensus_raft.voting import Ballot, Tally, judge, moves_term

SOON = (0.1, 0.5)
"""Bounds, in election timeouts, of the wait after a campaign that was refused or split."""

PATIENCE_MAX = 16
"""Most times that waits are longer than on a machine that keeps up."""

SAVING_MAX = 4
"""Most election timeouts that peers are given besides, to save a vote as slowly as this replica did: a disk that stood
still once is not waited for twice."""


class Elections:
    """Campaigns of one replica, and its votes in those of others."""

    __slots__ = ("_attempt", "_campaign", "_late_from", "_leader", "_replica", "_vote_ready_id")

    def __init__(self, replica: Replica, leader: Leader) -> None:
        self._replica = replica
        self._leader = leader
        self._attempt = 0
        self._campaign = 0  # The first attempt of the present campaign.
        self._late_from = 1  # Answers to attempts below this one have been counted as late.
        self._vote_ready_id = 0

    # -- campaigning -----------------------------------------------------------------------------

    def tick(self) -> None:
        """Campaign if the deadline has passed, and what was promised last is durable.

        Until then peers cannot have heard of it: another campaign would make it void and save one promise more."""
        replica = self._replica
        deadline = replica.election_deadline_us
        if deadline is None or replica.now_us < deadline:
            return
        if replica.saving_since_us is None:
            self.campaign()
        else:
            replica.election_deadline_us = replica.now_us + replica.timeout_us // 10

    def campaign(self) -> None:
        """Begin a campaign with its pre-vote. Ignored by leaders and by those who may not lead."""
        replica = self._replica
        if not replica.may_campaign or replica.role is Role.LEADER:
            return
        before = replica.campaign
        split = before is not None and len(before.granted) + len(before.refused) > 1
        replica.move(Cause.TIMEOUT)
        replica.leader = None
        wait = replica.draw_timeout_us(*SOON) if split else replica.draw_timeout_us()
        replica.election_deadline_us = replica.now_us + wait * replica.patience
        self._campaign = self._next_attempt()
        self._open(Tally(term=replica.term + 1, pre=True, attempt=self._campaign))
        self._ask()
        self._count(replica.node_id, granted=True)

    def take_over(self) -> None:
        """Campaign for a leader that hands over: without a pre-vote, and nobody withholds a vote for its sake."""
        replica = self._replica
        if not replica.may_campaign or not replica.move(Cause.TRANSFER):
            return
        replica.election_deadline_us = replica.now_us + replica.draw_timeout_us()
        self._vote_phase(transfer=True)

    def _next_attempt(self) -> int:
        self._attempt += 1
        return self._attempt

    def _open(self, tally: Tally) -> None:
        self._replica.campaign = tally

    def _vote_phase(self, *, transfer: bool = False) -> None:
        """Enter a new term and ask for votes; our own counts once it is durable."""
        replica = self._replica
        replica.set_term(replica.term + 1, replica.node_id)
        self._vote_ready_id = replica.outbox.next_id
        self._open(Tally(term=replica.term, pre=False, attempt=self._next_attempt()))
        self._ask(transfer=transfer)

    def _ask(self, *, transfer: bool = False) -> None:
        replica, tally = self._replica, self._replica.campaign
        assert tally is not None
        request = VoteRequest(
            term=tally.term, last=replica.log.last, attempt=tally.attempt, pre=tally.pre, transfer=transfer
        )
        for voter in replica.voters:
            if voter != replica.node_id:
                replica.send(voter, request)

    def _count(self, voter: NodeId, *, granted: bool) -> None:
        replica, tally = self._replica, self._replica.campaign
        assert tally is not None
        if not tally.count(voter, granted):
            return
        if not granted and len(tally.refused) == 1:
            self._retry_soon()
        if len(tally.granted) >= replica.majority:
            self._won(tally)
        elif len(replica.voters) - len(tally.refused) < replica.majority:
            replica.move(Cause.CAMPAIGN_LOST)

    def _won(self, tally: Tally) -> None:
        if tally.pre:
            self._vote_phase()
            return
        self._replica.patience = 1
        self._replica.move(Cause.VOTES_WON)
        self._leader.begin()

    def _retry_soon(self) -> None:
        replica = self._replica
        soon = replica.now_us + replica.draw_timeout_us(*SOON) * replica.patience
        deadline = replica.election_deadline_us
        replica.election_deadline_us = soon if deadline is None else min(deadline, soon)

    def on_reply(self, voter: NodeId, reply: VoteReply) -> None:
        """Count the answer of a member. Late ones, and those to another attempt, say nothing."""
        replica = self._replica
        if reply.term > replica.term:
            candidate = replica.role is Role.CANDIDATE
            replica.step_down(Cause.HIGHER_TERM, reply.term)
            if candidate:
                self._retry_soon()
            return
        tally = replica.campaign
        if tally is None or (reply.campaign_term, reply.attempt, reply.pre) != (tally.term, tally.attempt, tally.pre):
            self._note_late(reply)
            return
        if voter not in replica.voters:
            replica.refuse_peer("vote of a learner")
            return
        self._count(voter, granted=reply.refusal is None)

    def _note_late(self, reply: VoteReply) -> None:
        """Be more patient, once for each campaign that was given up before its answers came."""
        if self._late_from <= reply.attempt < self._campaign and self._replica.role is Role.CANDIDATE:
            self._late_from = self._campaign
            self._replica.patience = min(2 * self._replica.patience, PATIENCE_MAX)

    def persisted(self, ready_id: int) -> None:
        """Our own vote counts once it is durable. Peers get as long to save theirs as this one took."""
        replica = self._replica
        if replica.saving_since_us is not None and ready_id >= replica.saving_ready:
            took_us, replica.saving_since_us = replica.now_us - replica.saving_since_us, None
            if took_us > replica.timeout_us // 2 and self._awaits_a_vote():
                self._wait_as_long(min(took_us, SAVING_MAX * replica.timeout_us))
        tally = self._replica.campaign
        if tally is not None and not tally.pre and ready_id >= self._vote_ready_id:
            self._count(self._replica.node_id, granted=True)

    def _awaits_a_vote(self) -> bool:
        """Whether somebody may be saving a vote that decides this term: not in a campaign that was refused already,
        as those are that begin side by side; another one soon is all that helps there. A lone voter waits for nobody.
        """
        replica, tally = self._replica, self._replica.campaign
        if replica.voted_for == replica.node_id:
            return tally is not None and not tally.refused and replica.majority > 1
        return True

    def _wait_as_long(self, took_us: int) -> None:
        replica = self._replica
        if replica.election_deadline_us is not None:
            later = replica.now_us + took_us + replica.draw_timeout_us()
            replica.election_deadline_us = max(replica.election_deadline_us, later)

    # -- voting ----------------------------------------------------------------------------------

    def on_request(self, candidate: NodeId, request: VoteRequest) -> None:
        """Answer a vote or pre-vote. What is granted is durable before the answer leaves.

        A candidate that our config does not list is answered like any other: a replica that lags
        may not know the newest members yet, and they may need its vote (thesis, 4.1)."""
        replica = self._replica
        ballot = Ballot(
            term=replica.term,
            voted_for=replica.voted_for,
            last=replica.log.last,
            leader_alive=replica.leader_is_alive(),
        )
        refusal = judge(request, candidate, ballot)
        if not request.pre:
            if request.term > replica.term and moves_term(refusal):
                replica.step_down(Cause.HIGHER_TERM, request.term)
            if refusal is None:
                replica.vote_for(candidate)
                replica.rest()
        reply = VoteReply(
            term=replica.term, campaign_term=request.term, attempt=request.attempt, pre=request.pre, refusal=refusal
        )
        replica.send(candidate, reply)
