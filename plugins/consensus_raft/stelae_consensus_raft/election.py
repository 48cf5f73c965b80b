"""Elections: when a replica campaigns, how it answers vote requests, and when a campaign is won or lost.

A campaign has two phases. The pre-vote asks each voter whether it would grant a vote. It changes no state on any
replica. If a majority would grant it, the candidate enters a new term and asks for votes. Its own vote counts once it
is durable, as every vote does (durability rule 9). ``vote_rules`` decides each answer.

Waits between campaigns, where T is the election timeout and every wait is drawn at random:

- A follower campaigns when it has heard no leader for T to 2T.
- A campaign that was refused or split is repeated after T/10 to T/2, so that the next attempt does not cost another 2T.
- A campaign without any answer is repeated after T to 2T.
- Each of these waits is T longer on a replica that would lead as a caretaker only (``RaftState.draw_timeout_us``).

Backoff: a late answer to an earlier campaign shows that this replica gives up before its peers can answer, as on an
overloaded machine. Each such campaign doubles the waits, up to sixteenfold, until a leader is known. Without this, a
hundred tablets on one overloaded machine would campaign for ever and keep it overloaded.

Slow disks: a replica does not campaign while its last term or vote is not durable. If its vote took long to become
durable, it gives its peers as much time again to save theirs.
"""

from __future__ import annotations

from stelae.spi.consensus import Role
from stelae.spi.ids import NodeId
from stelae_consensus_raft.leader import Leader
from stelae_consensus_raft.messages import VoteReply, VoteRequest
from stelae_consensus_raft.raft_state import RaftState
from stelae_consensus_raft.transitions import Cause
from stelae_consensus_raft.vote_rules import VoterState, VoteTally, decide_vote, moves_to_term

RETRY_WAIT = (0.1, 0.5)
"""Bounds, in election timeouts, of the wait after a campaign that was refused or split."""

BACKOFF_FACTOR_MAX = 16
"""Largest factor by which the waits are multiplied on an overloaded machine."""

SAVE_TIMEOUTS_MAX = 4
"""Largest extra time, in election timeouts, that a campaign gives peers to save a vote. A disk that stalled once must
not delay the next campaign for as long again."""


class Elections:
    """Campaigns of one replica, and its votes in those of others."""

    __slots__ = ("_attempt", "_campaign", "_late_attempts_from", "_leader", "_state", "_vote_ready_id")

    def __init__(self, state: RaftState, leader: Leader) -> None:
        self._state = state
        self._leader = leader
        self._attempt = 0
        self._campaign = 0  # Number of the first attempt of the current campaign.
        self._late_attempts_from = 1  # Answers to attempts below this one have been counted as late.
        self._vote_ready_id = 0

    # -- campaigning -----------------------------------------------------------------------------

    def tick(self) -> None:
        """Campaign if the deadline has passed, no vote is promised and the last term and vote are durable.

        While they are not, no peer has received the requests of that term. Another campaign would make them void and
        write one more term. A vote may be promised although the deadline has passed: one that took over from a leader
        and was refused tries again soon, and may have heard that leader a moment ago."""
        state = self._state
        deadline = state.election_deadline_us
        if deadline is None or state.now_us < deadline:
            return
        if state.hard_state_pending_since_us is not None or state.is_bound():
            state.election_deadline_us = state.now_us + state.timeout_us // 10
        else:
            self.campaign()

    def campaign(self) -> None:
        """Begin a campaign with its pre-vote. Leaders, and replicas that may not lead, ignore the call."""
        state = self._state
        if not state.may_campaign or state.role is Role.LEADER:
            return
        if state.is_bound():
            return  # A campaign that the driver asks for must not break the promise to withhold this vote.
        if state.log.last < state.vote_floor:
            state.reset_election_deadline()  # It has the log again only up to a config in which it had a vote.
            return
        before = state.campaign
        split = before is not None and len(before.granted) + len(before.refused) > 1
        state.change_role(Cause.TIMEOUT)
        state.leader = None
        wait = state.draw_timeout_us(*RETRY_WAIT) if split else state.draw_timeout_us()
        state.election_deadline_us = state.now_us + wait * state.backoff_factor
        self._campaign = self._next_attempt()
        self._start_tally(VoteTally(term=state.term + 1, pre=True, attempt=self._campaign))
        self._request_votes()
        self._count_own_vote()

    def take_over(self) -> None:
        """Campaign because the leader hands over: without a pre-vote, and without votes withheld for that leader."""
        state = self._state
        if not state.may_campaign or state.log.last < state.vote_floor or not state.change_role(Cause.TRANSFER):
            return
        state.election_deadline_us = state.now_us + state.draw_timeout_us()
        self._vote_phase(transfer=True)

    def _next_attempt(self) -> int:
        self._attempt += 1
        return self._attempt

    def _start_tally(self, tally: VoteTally) -> None:
        self._state.campaign = tally

    def _vote_phase(self, *, transfer: bool = False) -> None:
        """Enter a new term and ask for votes. The replica's own vote counts once it is durable."""
        state = self._state
        state.set_term(state.term + 1, state.node_id)
        self._vote_ready_id = state.ready.next_id
        self._start_tally(VoteTally(term=state.term, pre=False, attempt=self._next_attempt()))
        self._request_votes(transfer=transfer)

    def _request_votes(self, *, transfer: bool = False) -> None:
        state, tally = self._state, self._state.campaign
        assert tally is not None
        request = VoteRequest(
            term=tally.term, last=state.log.last, attempt=tally.attempt, pre=tally.pre, transfer=transfer
        )
        for voter in state.voters:
            if voter != state.node_id:
                state.send(voter, request)

    def _count_own_vote(self) -> None:
        """Count this replica's vote, unless its newest config gives it none (Raft thesis, 4.2.2)."""
        if self._state.is_voter:
            self._count_vote(self._state.node_id, granted=True)

    def _count_vote(self, voter: NodeId, *, granted: bool) -> None:
        state, tally = self._state, self._state.campaign
        assert tally is not None
        if not tally.count(voter, granted):
            return
        if not granted and len(tally.refused) == 1:
            self._retry_soon()
        if len(tally.granted) >= state.majority:
            self._on_majority(tally)
        elif len(state.voters) - len(tally.refused) < state.majority:
            state.change_role(Cause.CAMPAIGN_LOST)

    def _on_majority(self, tally: VoteTally) -> None:
        if tally.pre:
            self._vote_phase()
            return
        self._state.backoff_factor = 1
        self._state.change_role(Cause.VOTES_WON)
        self._leader.begin()

    def _retry_soon(self) -> None:
        state = self._state
        soon = state.now_us + state.draw_timeout_us(*RETRY_WAIT) * state.backoff_factor
        deadline = state.election_deadline_us
        state.election_deadline_us = soon if deadline is None else min(deadline, soon)

    def on_reply(self, voter: NodeId, reply: VoteReply) -> None:
        """Count a member's answer. Late answers, and answers to another attempt, do not count."""
        state = self._state
        if reply.term > state.term:
            candidate = state.role is Role.CANDIDATE
            state.step_down(Cause.HIGHER_TERM, reply.term)
            if candidate and state.may_campaign:  # A recovery may have left this replica behind.
                self._retry_soon()
            return
        tally = state.campaign
        if tally is None or (reply.campaign_term, reply.attempt, reply.pre) != (tally.term, tally.attempt, tally.pre):
            self._count_late_reply(reply)
            return
        if voter not in state.voters:
            state.count_refused("vote of a learner")
            return
        self._count_vote(voter, granted=reply.refusal is None)

    def _count_late_reply(self, reply: VoteReply) -> None:
        """Double the backoff factor, once for each campaign whose answers came after it was given up."""
        if self._late_attempts_from <= reply.attempt < self._campaign and self._state.role is Role.CANDIDATE:
            self._late_attempts_from = self._campaign
            self._state.backoff_factor = min(2 * self._state.backoff_factor, BACKOFF_FACTOR_MAX)

    def on_persisted(self, ready_id: int) -> None:
        """Count the replica's own vote once it is durable, and give peers as long to save theirs as this one took.

        ``ready_id`` and all Readies before it are durable."""
        state = self._state
        if state.hard_state_pending_since_us is not None and ready_id >= state.hard_state_ready_id:
            took_us = state.now_us - state.hard_state_pending_since_us
            state.hard_state_durable()
            if took_us > state.timeout_us // 2 and self._waits_for_a_vote():
                self._extend_deadline(min(took_us, SAVE_TIMEOUTS_MAX * state.timeout_us))
        tally = self._state.campaign
        if tally is not None and not tally.pre and ready_id >= self._vote_ready_id:
            self._count_own_vote()

    def _waits_for_a_vote(self) -> bool:
        """Return true if a peer may be saving a vote that decides this term.

        In a campaign that was refused already, as when two begin at the same time, waiting does not help: the next
        campaign must come soon. A replica that is the only voter waits for no peer."""
        state, tally = self._state, self._state.campaign
        if state.voted_for == state.node_id:
            return tally is not None and not tally.refused and state.majority > 1
        return True

    def _extend_deadline(self, took_us: int) -> None:
        state = self._state
        if state.election_deadline_us is not None:
            later = state.now_us + took_us + state.draw_timeout_us()
            state.election_deadline_us = max(state.election_deadline_us, later)

    # -- voting ----------------------------------------------------------------------------------

    def on_request(self, candidate: NodeId, request: VoteRequest) -> None:
        """Answer a vote or pre-vote request. A vote is durable before its answer is sent (durability rule 1).

        A candidate outside this replica's config gets an answer like any other: a lagging replica may not know the
        newest members yet, and they may need its vote (Raft thesis, 4.1)."""
        state = self._state
        had = max(state.log.last, state.vote_floor)
        voter = VoterState(term=state.term, voted_for=state.voted_for, last=had, leader_alive=state.leader_is_alive())
        refusal = decide_vote(request, candidate, voter)
        if not request.pre:
            if request.term > state.term and moves_to_term(refusal):
                state.step_down(Cause.HIGHER_TERM, request.term)
            if refusal is None:
                state.vote_for(candidate)
                state.reset_election_deadline()
        reply = VoteReply(
            term=state.term, campaign_term=request.term, attempt=request.attempt, pre=request.pre, refusal=refusal
        )
        state.send(candidate, reply)
