"""The Raft core of one replica: one entrance, explicit effects; see ``stelae.spi.consensus``.

``step`` hands each event to the part that knows about it (elections, follower, leader) and then
lets the parts send, once for the whole batch. The parts share one ``Replica``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from stelae.spi.consensus import (
    Applied,
    BeatException,
    Campaign,
    ConsensusCore,
    CopyFinished,
    Event,
    Fatal,
    LeaderAlive,
    PeerAlive,
    PeerUnreachable,
    Persisted,
    PersistFailed,
    Propose,
    RangeCompacted,
    RangeSent,
    ReadRequest,
    Ready,
    Received,
    Role,
    Status,
    StepDown,
    Tick,
    Transfer,
)
from stelae.spi.ids import NodeId
from stelae_consensus_raft.election import Elections
from stelae_consensus_raft.follower import Follower
from stelae_consensus_raft.invariants import check
from stelae_consensus_raft.leader import Leader
from stelae_consensus_raft.messages import AppendEntries, AppendReply, RaftMessage, TimeoutNow, VoteReply, VoteRequest
from stelae_consensus_raft.replica import BrokenInvariant, Replica
from stelae_consensus_raft.sound import flaw_of
from stelae_consensus_raft.transfer import Transfers
from stelae_consensus_raft.transitions import Cause


class RaftCore(ConsensusCore):
    """Consensus of one replica. ``refused`` and ``transitions`` count for tests and metrics."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._leader = Leader(replica)
        self._elections = Elections(replica, self._leader)
        self._follower = Follower(replica)
        self._transfers = Transfers(replica, self._elections)
        self._handlers: dict[type, Callable[[Any], None]] = {
            Tick: self._on_tick,
            Received: self._on_received,
            Propose: self._leader.propose,
            ReadRequest: self._leader.read,
            Persisted: self._on_persisted,
            PersistFailed: self._on_persist_failed,
            Applied: self._on_applied,
            RangeSent: self._leader.on_range_sent,
            RangeCompacted: self._leader.on_range_compacted,
            LeaderAlive: self._follower.on_leader_alive,
            PeerAlive: self._leader.on_peer_alive,
            BeatException: self._leader.on_beat_exception,
            PeerUnreachable: self._on_unreachable,
            CopyFinished: self._leader.on_copy_finished,
            Campaign: self._on_campaign,
            Transfer: self._transfers.begin,
            StepDown: self._on_step_down,
        }
        replica.refresh_serving()
        replica.rest()

    # -- the contract ----------------------------------------------------------------------------

    def step(self, events: Sequence[Event]) -> None:
        """Take a batch of events; what they cause is sent once for all of them."""
        if self._replica.fatal:
            return
        handlers = self._handlers
        try:
            for event in events:
                handlers[type(event)](event)
            self._follower.flush()
            self._leader.flush()
            self._transfers.flush()
        except BrokenInvariant as broken:
            self._replica.fatal = True
            self._replica.outbox.fatal = Fatal(str(broken), tuple(self._replica.history))

    def can_wait(self, event: Event) -> bool:
        """A follower's own durability matters to its leader alone, who hears of it from the driver. A leader's, and
        an acknowledgement, can wait while neither completes a majority nor makes room to send."""
        replica = self._replica
        handing_over = replica.leadership is not None and replica.leadership.handover is not None
        if replica.fatal or replica.campaign is not None or handing_over:
            return False
        if isinstance(event, Persisted):
            if (
                replica.leader is None
                and replica.saving_since_us is not None
                and event.ready_id >= replica.saving_ready
            ):
                return False  # How long a vote took to save is measured now.
            return event.ready_id < replica.outbox.next_id and not self._leader.would_commit(
                replica.durable.after(event.ready_id)
            )
        return (
            isinstance(event, Received)
            and isinstance(event.message, AppendReply)
            and flaw_of(event.message, event.entries) is None
            and self._leader.can_wait(event.sender, event.message)
        )

    def take_ready(self) -> Ready | None:
        """Return the effects since the last call, or ``None``."""
        return self._replica.outbox.take()

    def next_deadline(self) -> int | None:
        """When a ``Tick`` is due, in monotonic microseconds."""
        if self._replica.leadership is not None:
            return self._leader.deadline_us()
        return None if self._replica.fatal else self._replica.election_deadline_us

    def status(self) -> Status:
        """A snapshot."""
        replica = self._replica
        lead = replica.leadership
        return Status(
            node_id=replica.node_id,
            role=replica.role,
            term=replica.term,
            voted_for=replica.voted_for,
            leader=replica.leader,
            last=replica.log.last,
            durable_index=replica.durable.index,
            commit=replica.commit,
            applied=replica.applied,
            serving=replica.serving,
            config=replica.configs.current,
            committed_config=replica.configs.committed,
            peers=tuple(p.snapshot() for p in lead.peers.values()) if lead is not None else (),
            all_replicated_index=replica.all_replicated,
        )

    def validate_state(self) -> None:
        """Check every invariant; raises ``AssertionError``."""
        check(self._replica)

    @property
    def refused(self) -> Mapping[str, int]:
        """Peer messages that no honest peer sends, by what was wrong with them."""
        return MappingProxyType(self._replica.refused)

    @property
    def transitions(self) -> Mapping[tuple[Role, Cause], int]:
        """How often each cell of the transition table was met."""
        return MappingProxyType(self._replica.transitions)

    # -- events ----------------------------------------------------------------------------------

    def _on_tick(self, event: Tick) -> None:
        if event.now_us < self._replica.now_us:
            raise BrokenInvariant(f"time went back from {self._replica.now_us} to {event.now_us}")
        self._replica.now_us = event.now_us
        if self._replica.leadership is not None:
            self._leader.tick()
            self._transfers.tick()
        else:
            self._elections.tick()

    def _on_received(self, event: Received) -> None:
        message, sender = event.message, event.sender
        if not isinstance(message, RaftMessage):
            self._replica.refuse_peer("message of another engine")
            return
        flaw = flaw_of(message, event.entries) or self._flaw_of_sender(sender, message)
        if flaw is not None:
            self._replica.refuse_peer(flaw)
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

    def _flaw_of_sender(self, sender: NodeId, message: RaftMessage) -> str | None:
        """Return why this sender cannot send this, or ``None``.

        Only members are asked, so only members answer. Requests are taken from other nodes too: a lagging replica does
        not know the newest members yet, and they may need its vote (thesis, 4.1)."""
        if sender == self._replica.node_id:
            return "message from ourselves"
        if isinstance(message, AppendReply | VoteReply) and sender not in self._replica.peer_ids:
            return "answer of a stranger"
        return None

    def _on_persisted(self, event: Persisted) -> None:
        if event.ready_id >= self._replica.outbox.next_id:
            raise BrokenInvariant(f"Ready {event.ready_id} is durable but was never handed out")
        if self._replica.durable.persisted(event.ready_id):
            self._leader.persisted()
        self._elections.persisted(event.ready_id)

    def _on_persist_failed(self, event: PersistFailed) -> None:
        """Give up what depended on it. Term and vote are written again before anything else."""
        replica = self._replica
        replica.step_down(Cause.PERSIST_FAILED)
        replica.log_failed(event.durable_index)
        replica.persist_hard_state()
        replica.saving_since_us = None  # It is written for the second time: nobody waits for an answer to it.
        self._follower.log_failed()
        replica.rest()

    def _on_applied(self, event: Applied) -> None:
        if event.index > self._replica.commit:
            raise BrokenInvariant(f"applied {event.index}, only {self._replica.commit} committed")
        self._replica.applied = max(self._replica.applied, event.index)

    def _on_unreachable(self, event: PeerUnreachable) -> None:
        self._leader.on_unreachable(event.peer)

    def _on_campaign(self, event: Campaign) -> None:
        """A hint counts only where no config was ever agreed."""
        if not event.hinted or self._replica.never_configured:
            self._elections.campaign()

    def _on_step_down(self, event: StepDown) -> None:
        self._replica.step_down(Cause.STEP_DOWN)
