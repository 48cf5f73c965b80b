"""The leader's side: proposals, acknowledgements, commit, reads, and when to give up."""

from __future__ import annotations

from stelae.spi.consensus import (
    Accepted,
    BeatException,
    Beats,
    CopyFinished,
    PeerAlive,
    Proposal,
    Propose,
    RangeCompacted,
    RangeSent,
    ReadRequest,
    RejectReason,
    Role,
    encode_config,
)
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.log import ENTRY_BYTES_MAX, ENTRY_OVERHEAD_BYTES, Entry, EntryKind
from stelae_consensus_raft.feeder import Feeder
from stelae_consensus_raft.messages import NUMBER_MAX, AppendRefusal, AppendReply
from stelae_consensus_raft.progress import PeerState, Progress
from stelae_consensus_raft.replica import Leadership, Replica
from stelae_consensus_raft.transitions import Cause

CORE_KINDS = (EntryKind.NOOP, EntryKind.CONFIG)
"""Entries that only the core itself puts into the log."""


class Leader:
    """What a replica does while it leads; without effect while it does not."""

    __slots__ = ("_acked", "_feeder", "_replica", "_retry_us")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._feeder = Feeder(replica)
        self._retry_us = replica.settings.append_retry_ms * 1000
        self._acked = False

    def begin(self) -> None:
        """Take office: put the first entry of the term into the log and greet every peer.

        The first entry ever is the initial config, so that a majority agrees on it; later terms
        begin with an empty entry. Entries of older terms commit only along with this one."""
        replica = self._replica
        lead = replica.leadership = Leadership()
        replica.leader = replica.node_id
        replica.election_deadline_us = None
        next_index = replica.log.last_index + 1
        op_id = OpId(replica.term, next_index)
        if replica.config.op_id == ZERO:
            first = Entry(op_id, EntryKind.CONFIG, 0, encode_config(replica.config))
        else:
            first = Entry(op_id, EntryKind.NOOP, 0, b"")
        replica.append([first])
        for node in replica.peer_ids:
            peer = lead.peers[node] = Progress(node, next_index, replica.now_us)
            if node in replica.voters:
                lead.voting.append(peer)
        replica.outbox.beats = Beats(replica.term, replica.peer_ids)

    # -- proposals and reads ---------------------------------------------------------------------

    def propose(self, event: Propose) -> None:
        """Put proposals into the log, in order; each is accepted or rejected by its token."""
        replica, lead = self._replica, self._replica.leadership
        refusal = self._not_serving()
        if refusal is None and lead is not None and lead.handover is not None:
            refusal = RejectReason.TRANSFERRING
        if refusal is not None:
            for proposal in event.proposals:
                replica.reject(proposal.token, refusal)
            return
        pending = replica.sizes.between(replica.commit, replica.log.last_index)
        term, index = replica.term, replica.log.last_index
        entries, accepted = [], replica.outbox.accepted
        for proposal in event.proposals:
            refusal = self._unfit(proposal, pending)
            if refusal is not None:
                replica.reject(proposal.token, refusal)
                continue
            index += 1
            op_id = OpId(term, index)
            entries.append(Entry(op_id, proposal.kind, 0, proposal.body))
            accepted.append(Accepted(proposal.token, op_id))
            pending += len(proposal.body) + ENTRY_OVERHEAD_BYTES
        if entries:
            replica.append(entries)

    def _not_serving(self) -> RejectReason | None:
        if self._replica.role is not Role.LEADER:
            return RejectReason.NOT_LEADER
        return None if self._replica.serving else RejectReason.CONFIGURING

    def _unfit(self, proposal: Proposal, pending_bytes: int) -> RejectReason | None:
        if len(proposal.body) > ENTRY_BYTES_MAX:
            return RejectReason.TOO_LARGE
        if proposal.kind in CORE_KINDS:
            return RejectReason.UNSUPPORTED
        size = len(proposal.body) + ENTRY_OVERHEAD_BYTES
        limit = self._replica.settings.proposals_pending_bytes_max
        # Nothing pending: a single entry above the limit must be able to pass.
        if pending_bytes and pending_bytes + size > limit:
            return RejectReason.OVERLOADED
        return None

    def read(self, event: ReadRequest) -> None:
        """Queue a read until a majority confirms this leader; nothing is written."""
        replica, lead = self._replica, self._replica.leadership
        refusal = self._not_serving()
        if refusal is not None:
            replica.reject(event.token, refusal)
        elif lead is not None:
            if len(lead.reads) >= replica.settings.reads_pending_max:
                replica.reject(event.token, RejectReason.OVERLOADED)
            else:
                lead.reads.add(event.token, replica.commit)

    # -- what peers say --------------------------------------------------------------------------

    def on_reply(self, sender: NodeId, reply: AppendReply) -> None:
        """Take a member's answer to an append. Late and repeated ones change nothing."""
        replica, lead = self._replica, self._replica.leadership
        if reply.term > replica.term:
            replica.step_down(Cause.HIGHER_TERM, reply.term)
            return
        if lead is None or reply.term < replica.term:
            return
        peer = lead.peers.get(sender)
        if peer is None or reply.match > replica.log.last_index or reply.round > lead.reads.round:
            replica.refuse_peer("answer to what was never sent")
            return
        peer.heard_at_us = replica.now_us
        peer.retries = 0
        peer.round_acked = max(peer.round_acked, reply.round)
        if peer.state is PeerState.COPY:
            peer.was_away = peer.waiting = False
        self._acked = True
        if reply.refusal is None:
            self._accepted(peer, reply)
        else:
            self._refused(peer, reply)

    def can_wait(self, sender: NodeId, reply: AppendReply) -> bool:
        """Whether to take this reply now would neither commit, nor confirm a read, nor send anything."""
        replica, lead = self._replica, self._replica.leadership
        peer = lead.peers.get(sender) if lead is not None else None
        if lead is None or peer is None or reply.term != replica.term or reply.refusal is not None:
            return False
        settled = peer.state is PeerState.REPLICATE and peer.next > replica.log.last_index and not len(lead.reads)
        return (
            settled
            and not self.would_commit(replica.durable.index, peer, reply.match)
            and not self._feeder.would_tell(peer, reply.match, reply.commit)
        )

    def would_commit(self, own: int, peer: Progress | None = None, match: int = 0) -> bool:
        """Whether more would be committed with our log durable up to ``own``, and a peer's up to ``match``."""
        lead = self._replica.leadership
        if lead is None:
            return False
        matches = [max(p.match, match) if p is peer else p.match for p in lead.voting]
        return self._majority_of(own, matches) > self._replica.commit

    def _accepted(self, peer: Progress, reply: AppendReply) -> None:
        verified = reply.match >= peer.next - 1
        peer.acknowledged(reply.match, self._replica.now_us)
        peer.commit_known = max(peer.commit_known, reply.commit)
        restored = peer.state is PeerState.COPY and peer.match >= self._replica.log.base.index
        if restored or (verified and peer.state is PeerState.PROBE):
            peer.to_replicate()

    def _refused(self, peer: Progress, reply: AppendReply) -> None:
        if reply.refusal is AppendRefusal.NOT_HOSTED:
            self._feeder.ask_copy(peer, 1)
        elif reply.refusal is AppendRefusal.MISMATCH:
            self._mismatched(peer, reply)
        else:
            self._replica.refuse_peer("term refused as stale by one that is in it")

    def _mismatched(self, peer: Progress, reply: AppendReply) -> None:
        """Jump back to the last position at which both logs can agree, in one step.

        A refusal that does not belong to what is under way is late: acting on it would only lose
        what was learned since."""
        late = reply.rejected <= peer.match or reply.rejected >= peer.next
        if peer.state is PeerState.COPY or late:
            return
        if peer.state is PeerState.PROBE and reply.rejected != peer.next - 1:
            return
        log, hint = self._replica.log, reply.hint
        if hint.index < peer.match:
            # The peer has acknowledged more since it refused, and never gives that up in this term.
            peer.to_probe(peer.match + 1)
            return
        place = log.agreement(min(hint.index, reply.rejected - 1), hint.term)
        if place is None:
            self._feeder.ask_copy(peer, min(hint.index, log.base.index) + 1)
        else:
            peer.to_probe(place.index + 1)

    # -- what the driver says --------------------------------------------------------------------

    def on_peer_alive(self, event: PeerAlive) -> None:
        """A peer acknowledged a heartbeat of this term.

        A probe that it has not answered all the same was lost. It is repeated even if the peer lacks
        nothing: one that restarted learns from it what is committed, and an idle tablet sends nothing else."""
        lead, peer = self._replica.leadership, self._peer(event.peer)
        if lead is None or peer is None or event.term != self._replica.term:
            return
        peer.heard_at_us = max(peer.heard_at_us, event.heard_at_us)
        if peer.state is PeerState.COPY:
            self._feeder.ask_again(lead, peer, event.heard_at_us)
        elif peer.waiting and event.heard_at_us >= peer.retry_at_us(self._retry_us):
            peer.retries += 1
            peer.waiting = False

    def on_beat_exception(self, event: BeatException) -> None:
        """A peer does not follow: it is in a later term, or needs a real append."""
        replica = self._replica
        if event.peer not in replica.peer_ids or not 0 <= event.term <= NUMBER_MAX:
            replica.refuse_peer("heartbeat refused by a stranger, or in a term out of range")
            return
        if event.term > replica.term:
            replica.step_down(Cause.HIGHER_TERM, event.term)
            return
        peer = self._peer(event.peer)
        if peer is None:
            return
        if peer.state is PeerState.COPY:
            peer.was_away = True
        elif peer.state is PeerState.REPLICATE:
            peer.to_probe(peer.match + 1)
        elif replica.now_us >= peer.sent_at_us + self._retry_us:
            peer.waiting = False

    def on_unreachable(self, node: NodeId) -> None:
        """What was under way to a peer may be lost, and its commit index, which no log holds, forgotten.

        It is probed when the next retry is due, or, if it lacks nothing, once it is heard again."""
        peer = self._peer(node)
        if peer is None:
            return
        if peer.state is PeerState.COPY:
            peer.was_away, peer.waiting = True, False
        else:
            peer.commit_known = 0
            probing = peer.state is PeerState.PROBE
            peer.to_probe(peer.next if probing else peer.match + 1, waiting=True)
            peer.sent_at_us = self._replica.now_us

    def on_range_sent(self, event: RangeSent) -> None:
        """The driver sent less than it was asked to."""
        peer = self._peer(event.peer)
        if peer is None or peer.state is not PeerState.REPLICATE:
            return
        if event.through is not None:
            peer.shortened(event.asked.index, event.through.index)
        elif event.asked.index > peer.match:
            peer.to_probe(peer.match + 1, waiting=True)
            peer.sent_at_us = self._replica.now_us

    def on_range_compacted(self, event: RangeCompacted) -> None:
        """The log no longer has what the driver was asked to send. Other peers may be affected; ``feed`` finds them.

        A late answer about a peer that has got these entries in another way does not matter any more."""
        replica, base = self._replica, event.base.index
        replica.collected(event.base)
        peer = self._peer(event.peer)
        if peer is None or peer.state is PeerState.COPY:
            return
        lacks = peer.match < base and event.asked.index > peer.match
        if peer.state is PeerState.REPLICATE and lacks:
            self._feeder.ask_copy(peer, peer.match + 1)
        elif peer.next <= base:
            self._feeder.ask_copy(peer, peer.next)
        else:
            self.on_range_sent(RangeSent(event.peer, event.asked, None))

    def on_copy_finished(self, event: CopyFinished) -> None:
        """A copy ended: ask the peer where it is now."""
        peer = self._peer(event.peer)
        if peer is not None and peer.state is PeerState.COPY:
            through = event.through.index if event.through is not None else 0
            base = self._replica.log.base.index
            peer.to_probe(min(max(through, base), self._replica.log.last_index) + 1)

    def _peer(self, node: NodeId) -> Progress | None:
        lead = self._replica.leadership
        return lead.peers.get(node) if lead is not None else None

    def persisted(self) -> None:
        """The leader's own log is durable further than before."""
        self._acked = True

    # -- once per turn ---------------------------------------------------------------------------

    def flush(self) -> None:
        """Commit what a majority has, answer confirmed reads, and feed the peers."""
        lead = self._replica.leadership
        if lead is None:
            return
        if lead.reads.start_round():
            self._feeder.ask_round(lead)
            self._acked = True
        if self._acked:
            self._acked = False
            self._advance_commit(lead)
            self._note_all_replicated(lead)
            self._confirm_reads(lead)
        self._feeder.feed(lead)

    def _advance_commit(self, lead: Leadership) -> None:
        """Commit up to where a majority is durable, if that is an entry of our own term.

        Counting copies of an older entry proves nothing (Raft paper, figure 8): it commits only
        along with an entry of the current term behind it."""
        replica = self._replica
        index = self._majority_of(replica.durable.index, [peer.match for peer in lead.voting])
        if index > replica.commit and replica.log.term_at(index) == replica.term:
            replica.commit_to(index)

    def _note_all_replicated(self, lead: Leadership) -> None:
        """Up to where every member has the log, learners included. One that said nothing in this term counts as 0."""
        matches = [peer.match for peer in lead.peers.values()]
        self._replica.replicated_on_all(min([self._replica.durable.index, *matches]))

    def _confirm_reads(self, lead: Leadership) -> None:
        if len(lead.reads):
            rounds = [peer.round_acked for peer in lead.voting]
            confirmed = self._majority_of(lead.reads.round, rounds)
            self._replica.outbox.reads_ready.extend(lead.reads.confirmed(confirmed))

    def _majority_of(self, own: int, values: list[int]) -> int:
        """The highest value that a majority of the voters has reached."""
        if self._replica.is_voter:
            values.append(own)
        values.sort(reverse=True)
        return values[self._replica.majority - 1]

    # -- time ------------------------------------------------------------------------------------

    def _quorum_deadline_us(self, lead: Leadership) -> int | None:
        """When the leader gives up if it hears no more: 1.5 T after a majority was last heard."""
        if not lead.voting:
            return None
        replica = self._replica
        heard = self._majority_of(replica.now_us, [peer.heard_at_us for peer in lead.voting])
        return heard + replica.timeout_us * 3 // 2

    def deadline_us(self) -> int | None:
        """When the next tick matters to the leader."""
        lead = self._replica.leadership
        if lead is None:
            return None
        handover = lead.handover.deadline_us if lead.handover is not None else None
        due = (self._quorum_deadline_us(lead), self._feeder.deadline_us(lead), handover)
        return min((at for at in due if at is not None), default=None)

    def tick(self) -> None:
        """Give up without a majority; repeat what was not answered."""
        lead = self._replica.leadership
        if lead is None:
            return
        quorum = self._quorum_deadline_us(lead)
        if quorum is not None and self._replica.now_us >= quorum:
            self._replica.step_down(Cause.QUORUM_LOST)
        else:
            self._feeder.tick(lead)
