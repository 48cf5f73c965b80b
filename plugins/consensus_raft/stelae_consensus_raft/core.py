"""The Raft core of one replica, the implementation of ``stelae.spi.consensus.ConsensusCore``.

``step`` is its one entrance. It hands each event to the part that handles it (elections, follower, leader, client
requests, leadership transfers, changes of config, recovery). After the last event of the batch, each part produces its
messages, once for the whole batch. All parts share one ``RaftState``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from stelae.spi.consensus import ConsensusCore, Fatal, Ready, Role, Status
from stelae.spi.consensus_events import (
    AbortChange,
    Applied,
    BeatException,
    Campaign,
    ChangeMembers,
    Event,
    LeaderAlive,
    MergeMetadata,
    PeerAlive,
    PeerUnreachable,
    Persisted,
    PersistFailed,
    Propose,
    RangeCompacted,
    RangeSent,
    ReadRequest,
    Received,
    RecoverAlone,
    Removed,
    StandDown,
    StepDown,
    Tick,
    Transfer,
)
from stelae.spi.recovery_epoch import recovery_epoch
from stelae_consensus_raft.client_requests import ClientRequests
from stelae_consensus_raft.election import Elections
from stelae_consensus_raft.follower import Follower
from stelae_consensus_raft.invariants import check
from stelae_consensus_raft.leader import Leader
from stelae_consensus_raft.leadership_transfer import RaftTransfers
from stelae_consensus_raft.membership import RaftMembership
from stelae_consensus_raft.message_checks import message_error, term_error
from stelae_consensus_raft.messages import AppendEntries, AppendReply, RaftMessage, TimeoutNow, VoteReply, VoteRequest
from stelae_consensus_raft.raft_state import BrokenInvariant, RaftState
from stelae_consensus_raft.recovery import RaftRecovery
from stelae_consensus_raft.transitions import Cause


class RaftCore(ConsensusCore):
    """The consensus of one replica. ``refused`` and ``transitions`` are counters for tests and metrics."""

    def __init__(self, state: RaftState) -> None:
        self._state = state
        self._leader = Leader(state)
        self._elections = Elections(state, self._leader)
        self._follower = Follower(state)
        self._requests = ClientRequests(state)
        self._transfers = RaftTransfers(state, self._elections)
        self._membership = RaftMembership(state, self._transfers)
        self._recovery = RaftRecovery(state, self._elections)
        self._handlers: dict[type, Callable[[Any], None]] = {
            Tick: self._on_tick,
            Received: self._on_received,
            Propose: self._requests.propose,
            ReadRequest: self._requests.read,
            Persisted: self._on_persisted,
            PersistFailed: self._on_persist_failed,
            Applied: self._on_applied,
            RangeSent: self._leader.on_range_sent,
            RangeCompacted: self._leader.on_range_compacted,
            LeaderAlive: self._follower.on_leader_alive,
            PeerAlive: self._leader.on_peer_alive,
            BeatException: self._leader.on_beat_exception,
            PeerUnreachable: self._on_unreachable,
            Campaign: self._on_campaign,
            Transfer: self._transfers.begin,
            StepDown: self._on_step_down,
            ChangeMembers: self._membership.change,
            AbortChange: self._membership.abort,
            Removed: self._on_removed,
            RecoverAlone: self._recovery.recover_alone,
            StandDown: self._recovery.stand_down,
            MergeMetadata: self._on_merge,
        }
        state.refresh_serving()
        state.reset_election_deadline()

    # -- the contract ----------------------------------------------------------------------------

    def step(self, events: Sequence[Event]) -> None:
        """Handle a batch of events, then produce the messages that they cause, once for all of them."""
        if self._state.fatal:
            return
        handlers = self._handlers
        try:
            for event in events:
                handlers[type(event)](event)
            self._follower.flush()
            self._leader.commit()
            self._membership.flush()
            self._recovery.flush()
            self._leader.replicate()
            self._transfers.flush()
        except BrokenInvariant as broken:
            self._state.fatal = True
            self._state.ready.fatal = Fatal(str(broken), tuple(self._state.history))

    def can_wait(self, event: Event) -> bool:
        """Return true if the event may be handled together with a later one, without a turn of its own.

        That holds for two kinds of events. A ``Persisted`` can wait unless it would commit an entry: a follower's
        acknowledgement does not need it, because the driver sends it by itself. An ``AppendReply`` can wait unless it
        would commit an entry, confirm a read or cause a message."""
        state, leadership = self._state, self._state.leadership
        if state.fatal or state.campaign is not None:
            return False
        # After a change of voters the next turn counts anew what the present ones have acknowledged.
        if leadership is not None and (leadership.handover is not None or leadership.majority_changed):
            return False
        if isinstance(event, Persisted):
            if (
                state.leader is None
                and state.hard_state_pending_since_us is not None
                and event.ready_id >= state.hard_state_ready_id
            ):
                return False  # The time that the vote took to become durable is measured with this event.
            if leadership is None and state.election_deadline_us is None:
                return False  # No deadline starts a later turn: an idle learner would never know what is durable.
            return event.ready_id < state.ready.next_id and not self._leader.would_commit(
                state.durable.after(event.ready_id)
            )
        return (
            isinstance(event, Received)
            and isinstance(event.message, AppendReply)
            and message_error(event.message, event.entries, state.term) is None
            and self._leader.can_wait(event.sender, event.message)
        )

    def take_ready(self) -> Ready | None:
        """Return the effects since the last call, or ``None`` if there are none."""
        return self._state.ready.take()

    def next_deadline(self) -> int | None:
        """Return when the next ``Tick`` is due, in monotonic microseconds, or ``None`` if none is."""
        leadership = self._state.leadership
        if leadership is not None:
            due = (self._leader.deadline_us(), self._membership.deadline_us(leadership))
            return min((at for at in due if at is not None), default=None)
        return None if self._state.fatal else self._state.election_deadline_us

    def status(self) -> Status:
        """Return a snapshot of the replica's state."""
        state = self._state
        leadership = state.leadership
        return Status(
            node_id=state.node_id,
            role=state.role,
            term=state.term,
            voted_for=state.voted_for,
            leader=state.leader,
            last=state.log.last,
            durable_index=state.durable.index,
            commit=state.commit,
            applied=state.applied,
            serving=state.serving,
            config=state.configs.current,
            committed_config=state.configs.committed,
            peers=tuple(p.snapshot() for p in leadership.peers.values()) if leadership is not None else (),
            all_replicated_index=state.all_replicated,
            caretaker=state.is_caretaker,
        )

    def validate_state(self) -> None:
        """Check every invariant.

        Raises:
            AssertionError: one does not hold.
        """
        check(self._state)

    @property
    def refused(self) -> Mapping[str, int]:
        """The number of messages that no correct peer sends, by what was wrong with them."""
        return MappingProxyType(self._state.refused)

    @property
    def transitions(self) -> Mapping[tuple[Role, Cause], int]:
        """How often each cell of the transition table was used."""
        return MappingProxyType(self._state.transitions)

    # -- events ----------------------------------------------------------------------------------

    def _on_tick(self, event: Tick) -> None:
        if event.now_us < self._state.now_us:
            raise BrokenInvariant(f"time went back from {self._state.now_us} to {event.now_us}")
        self._state.now_us = event.now_us
        self._state.time_held_back = event.held_back
        if self._state.leadership is not None:
            self._leader.tick()
            self._transfers.tick()
        else:
            self._elections.tick()

    def _on_received(self, event: Received) -> None:
        message, sender = event.message, event.sender
        if not isinstance(message, RaftMessage):
            self._state.count_refused("message of another engine")
            return
        flaw = message_error(message, event.entries, self._state.term)
        if sender == self._state.node_id:
            flaw = "message from this replica itself"
        if flaw is not None:
            self._state.count_refused(flaw)
            return
        # Requests are accepted from any node: a lagging replica does not know the newest members yet, and they may need
        # its vote (Raft thesis, 4.1). Answers count only from members. Others were removed since they were asked.
        if isinstance(message, AppendReply | VoteReply) and sender not in self._state.peer_ids:
            self._state.count_refused("answer of a node outside the config")
            return
        match message:
            case AppendEntries():
                self._follower.on_append(sender, message, event.entries)
            case AppendReply():
                self._leader.on_reply(sender, message)
            case VoteRequest():
                self._elections.on_request(sender, message)
            case VoteReply():
                self._elections.on_reply(sender, message)
            case TimeoutNow():
                self._transfers.on_timeout_now(sender, message)

    def _on_persisted(self, event: Persisted) -> None:
        if event.ready_id >= self._state.ready.next_id:
            raise BrokenInvariant(f"Ready {event.ready_id} is durable but was never handed out")
        if self._state.durable.persisted(event.ready_id):
            self._leader.on_persisted()
        self._elections.on_persisted(event.ready_id)

    def _on_persist_failed(self, event: PersistFailed) -> None:
        """Give up everything that depended on the failed write. Term and vote are written again first."""
        state = self._state
        state.step_down(Cause.PERSIST_FAILED)
        state.log_failed(event.durable_index)
        state.persist_hard_state()
        state.hard_state_pending_since_us = None  # This is a second write of the same state: no peer waits for it.
        self._follower.log_failed()
        state.reset_election_deadline()

    def _on_applied(self, event: Applied) -> None:
        if event.index > self._state.commit:
            raise BrokenInvariant(f"applied {event.index}, only {self._state.commit} committed")
        self._state.applied = max(self._state.applied, event.index)

    def _on_unreachable(self, event: PeerUnreachable) -> None:
        self._leader.on_unreachable(event.peer)

    def _on_campaign(self, event: Campaign) -> None:
        """Campaign. A hint counts only if no config was ever committed."""
        if not event.hinted or self._state.never_configured:
            self._elections.campaign()

    def _on_removed(self, event: Removed) -> None:
        """Stop campaigning if the config is newer than all that this replica knows. A leader knows them all.

        The exception is a config of a later recovery epoch: no leader of an earlier one knows it (rule 29)."""
        state = self._state
        flaw = term_error(event.config_id.term, state.term)
        if flaw is not None:
            state.count_refused(flaw)
            return
        if recovery_epoch(event.config_id.term) > recovery_epoch(state.term):
            state.step_down(Cause.HIGHER_TERM, event.config_id.term)
        if event.config_id > state.config.op_id and state.role is not Role.LEADER:
            state.removed(event.config_id)

    def _on_merge(self, event: MergeMetadata) -> None:
        raise BrokenInvariant("a replica that has a log was asked to merge the metadata of a copy's source")

    def _on_step_down(self, event: StepDown) -> None:
        self._state.step_down(Cause.STEP_DOWN)
