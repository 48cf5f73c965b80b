"""The core of a replica without a log: a tombstone, or a copy that is under way. It only votes (durability rule 19)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from stelae.spi.consensus import ConsensusCore, HardState, Ready, Status
from stelae.spi.consensus_events import (
    AbortChange,
    ChangeMembers,
    Event,
    LeaderAlive,
    MergeMetadata,
    Propose,
    ReadRequest,
    Received,
    RecoverAlone,
    StandDown,
    Tick,
    Transfer,
)
from stelae.spi.core_restore import merged, status_without_log
from stelae.spi.ids import NodeId, OpId
from stelae.spi.rejections import Rejection, RejectReason
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.message_checks import message_error
from stelae_consensus_raft.messages import AppendEntries, AppendRefusal, AppendReply, VoteReply, VoteRequest
from stelae_consensus_raft.ready_builder import ReadyBuilder
from stelae_consensus_raft.vote_rules import VoterState, decide_vote, moves_to_term


class VoterCore(ConsensusCore):
    """A core that votes with the last op id of the log that it had. If that is unknown (``None``), it never votes."""

    def __init__(
        self, *, node_id: NodeId, hard_state: HardState, last: OpId | None, settings: RaftConfig, now_us: int
    ) -> None:
        self._node_id = node_id
        self._hard_state = hard_state
        self._last = last
        self._timeout_us = settings.election_timeout_ms * 1000
        self._now_us = now_us
        self._leader_heard_at_us: int | None = None
        # It promises nothing itself, but may have promised something while it had a log (durability rule 13).
        self._promised_us = hard_state.promised_us
        self._withhold_until_us = now_us + hard_state.promised_us
        self._ready = ReadyBuilder(0)
        self._refused: Counter[str] = Counter()

    def step(self, events: Sequence[Event]) -> None:
        """Answer vote requests, refuse appends as NOT_HOSTED, and ignore events that need a log."""
        for event in events:
            match event:
                case Tick():
                    self._now_us = event.now_us
                case Received():
                    self._on_received(event)
                case LeaderAlive() if event.term == self._hard_state.term:
                    heard = max(self._leader_heard_at_us or 0, event.heard_at_us)
                    self._leader_heard_at_us = heard
                case MergeMetadata():
                    after = merged(self._hard_state, event.term)
                    if after.term > self._hard_state.term:
                        self._set_hard_state(after.term, after.voted_for)
                case ReadRequest() | Transfer() | ChangeMembers() | AbortChange() | RecoverAlone() | StandDown():
                    self._reject(event.token)
                case Propose():
                    for proposal in event.proposals:
                        self._reject(proposal.token)
                case _:
                    continue

    def _reject(self, token: int) -> None:
        self._ready.rejections.append(Rejection(token, RejectReason.NOT_LEADER))

    def _on_received(self, event: Received) -> None:
        message = event.message
        if event.sender == self._node_id or not isinstance(message, (VoteRequest, AppendEntries)):
            self._refused["message that a replica without a log does not accept"] += 1
            return
        flaw = message_error(message, event.entries, self._hard_state.term)
        if flaw is not None:
            self._refused[flaw] += 1
        elif isinstance(message, VoteRequest):
            self._on_vote_request(event.sender, message)
        else:
            self._on_append(event.sender, message)

    def _on_vote_request(self, candidate: NodeId, request: VoteRequest) -> None:
        heard = self._leader_heard_at_us
        alive = heard is not None and self._now_us - heard < self._timeout_us
        alive = alive or self._now_us < self._withhold_until_us
        durable = self._hard_state
        voter = VoterState(term=durable.term, voted_for=durable.voted_for, last=self._last, leader_alive=alive)
        refusal = decide_vote(request, candidate, voter)
        if not request.pre:
            if request.term > durable.term and moves_to_term(refusal):
                self._set_hard_state(request.term, None)
            if refusal is None:
                self._set_hard_state(request.term, candidate)
        reply = VoteReply(
            term=self._hard_state.term,
            campaign_term=request.term,
            attempt=request.attempt,
            pre=request.pre,
            refusal=refusal,
        )
        self._ready.send(candidate, reply, self._hard_state.term)

    def _on_append(self, leader: NodeId, message: AppendEntries) -> None:
        if message.term < self._hard_state.term:
            refusal = AppendRefusal.STALE_TERM
        else:
            refusal = AppendRefusal.NOT_HOSTED
            self._leader_heard_at_us = self._now_us
            if message.term > self._hard_state.term:
                self._set_hard_state(message.term, None)
        reply = AppendReply(
            term=self._hard_state.term,
            round=message.round,
            session=message.session,
            refusal=refusal,
            rejected=message.prev.index,
        )
        self._ready.send(leader, reply, self._hard_state.term)

    def _set_hard_state(self, term: int, voted_for: NodeId | None) -> None:
        promised_us = self._promised_us if self._now_us < self._withhold_until_us else 0
        hard_state = HardState(term, voted_for, promised_us)
        if hard_state == self._hard_state:
            return
        if hard_state.term > self._hard_state.term:
            self._ready.drop_messages()
        self._hard_state = hard_state
        self._ready.hard_state = hard_state

    def take_ready(self) -> Ready | None:
        """Return the effects since the last call, or ``None`` if there are none."""
        return self._ready.take()

    def next_deadline(self) -> int | None:
        """Return ``None``: this core never acts by itself."""
        return None

    def status(self) -> Status:
        """Return a snapshot of the state. An unknown last op id is shown as 0.0."""
        return status_without_log(self._node_id, self._hard_state, self._last)

    def validate_state(self) -> None:
        """Check every invariant.

        Raises:
            AssertionError: one does not hold.
        """
        assert self._hard_state.term >= 0
        assert self._last is None or self._last.term <= self._hard_state.term

    @property
    def refused(self) -> Mapping[str, int]:
        """The number of messages that no correct peer sends, by what was wrong with them."""
        return MappingProxyType(self._refused)
