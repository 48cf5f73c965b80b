"""The leader: the first entry of its term, the answers of its peers, the events of its driver, and when it steps down.

``commit_rule`` decides what commits, ``replication`` what each peer gets, ``client_requests`` what clients may do."""

from __future__ import annotations

from stelae.spi.consensus_events import DAMAGED, FAILED, UNKNOWN, BeatException, PeerAlive, RangeCompacted, RangeSent
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import encode_config
from stelae_consensus_raft.commit_rule import RaftCommitRule
from stelae_consensus_raft.leader_state import LeaderState
from stelae_consensus_raft.message_checks import term_error
from stelae_consensus_raft.messages import AppendRefusal, AppendReply
from stelae_consensus_raft.progress import PeerState, Progress
from stelae_consensus_raft.raft_state import RaftState
from stelae_consensus_raft.replication import Replicator
from stelae_consensus_raft.transitions import Cause


class Leader:
    """What a replica does while it leads. The methods have no effect while it does not."""

    __slots__ = ("_commit_rule", "_progressed", "_replicator", "_retry_us", "_state")

    def __init__(self, state: RaftState) -> None:
        self._state = state
        self._replicator = Replicator(state)
        self._commit_rule = RaftCommitRule(state)
        self._retry_us = state.settings.append_retry_ms * 1000
        self._progressed = False  # True if this turn brought what may commit an entry or confirm a read.

    def begin(self) -> None:
        """Begin a leadership: append the first entry of the term and begin to replicate to every peer.

        The first entry of a log is the initial config, so that a majority agrees on it (durability rule 10). Later
        terms begin with an empty entry. Entries of older terms commit only together with this one."""
        state = self._state
        leadership = state.leadership = LeaderState(state.log.last_index + 1, state.lease_length_us)
        state.leader = state.node_id
        state.election_deadline_us = None
        op_id = OpId(state.term, leadership.first_index)
        state.load_peers(leadership)
        if state.config.op_id == ZERO:
            first = Entry(op_id, EntryKind.CONFIG, 0, encode_config(state.config))
        else:
            first = Entry(op_id, EntryKind.NOOP, 0, b"")
        state.append([first])

    # -- answers of peers ------------------------------------------------------------------------

    def on_reply(self, sender: NodeId, reply: AppendReply) -> None:
        """Handle a member's answer to an append. Late and repeated answers change nothing."""
        state, leadership = self._state, self._state.leadership
        if reply.term > state.term:
            state.step_down(Cause.HIGHER_TERM, reply.term)
            return
        if leadership is None or reply.term < state.term:
            return
        peer = leadership.peers.get(sender)
        if peer is None or reply.session != peer.session:
            state.count_refused("answer of another time of membership")
            return
        if reply.match > state.log.last_index or reply.round > leadership.reads.round:
            state.count_refused("answer to a message that was never sent")
            return
        if reply.refusal is None or reply.log_only:
            # A node that hosts nothing has no log only, either. Its refusal may be late, and must not stand for rows.
            peer.log_only = reply.log_only
        peer.follows(state.now_us)
        answered = self._answers_retries(peer, reply)
        if answered:
            peer.retries = 0
        peer.round_acked = max(peer.round_acked, reply.round)
        if reply.withholds_us >= state.timeout_us:
            peer.round_promised = max(peer.round_promised, reply.round)
        if peer.state is PeerState.COPY:
            peer.was_unreachable = peer.waiting = False
        self._progressed = True
        if reply.refusal is None:
            self._on_accepted(peer, reply, answered=answered)
        else:
            self._on_refused(peer, reply)

    def _answers_retries(self, peer: Progress, reply: AppendReply) -> bool:
        """Return true if a reply may answer what is repeated. Entries are answered by a higher match index only.

        A peer with a slow disk confirms reads at once, long before it acknowledges entries. In COPY, requests for a
        copy are counted, which no reply answers."""
        if peer.state is PeerState.COPY:
            return False
        empty_probe = peer.next > self._state.log.last_index
        unanswered = peer.in_flight_count > 0 or (peer.waiting and not empty_probe)
        return not unanswered or reply.refusal is not None or reply.match > peer.match

    def can_wait(self, sender: NodeId, reply: AppendReply) -> bool:
        """Return true if this reply, handled now, would not commit an entry, confirm a read or send a message."""
        state, leadership = self._state, self._state.leadership
        peer = leadership.peers.get(sender) if leadership is not None else None
        if leadership is None or peer is None or reply.term != state.term or reply.refusal is not None:
            return False
        if peer.catch_up is not None or peer in leadership.witnesses or reply.session != peer.session:
            return False
        settled = peer.state is PeerState.REPLICATE and peer.next > state.log.last_index and not len(leadership.reads)
        return (
            settled
            and not self._commit_rule.would_commit(state.durable.index, peer, reply.match)
            and not self._replicator.would_send_commit(peer, reply.match, reply.commit)
        )

    def would_commit(self, durable_index: int) -> bool:
        """Return true if more would commit with this replica's log durable up to ``durable_index``."""
        return self._commit_rule.would_commit(durable_index)

    def _on_accepted(self, peer: Progress, reply: AppendReply, *, answered: bool) -> None:
        verified = answered and reply.match >= peer.next - 1
        peer.acknowledged(reply.match, self._state.now_us)
        peer.commit_known = max(peer.commit_known, reply.commit)
        restored = peer.state is PeerState.COPY and peer.match >= self._state.log.base.index
        if restored or (verified and peer.state is PeerState.PROBE):
            peer.to_replicate()
        if peer.catch_up is not None and peer.state is PeerState.REPLICATE:
            peer.catch_up.acknowledged(peer.match, self._state.log.last_index, self._state.now_us)

    def _on_refused(self, peer: Progress, reply: AppendReply) -> None:
        if reply.refusal is AppendRefusal.NOT_HOSTED:
            self._replicator.request_replica(peer)
        elif reply.refusal is AppendRefusal.MISMATCH:
            self._on_mismatch(peer, reply)
        else:
            self._state.count_refused("append refused as stale by a replica of the same term")

    def _on_mismatch(self, peer: Progress, reply: AppendReply) -> None:
        """Go back in one step to the last position at which both logs can agree, and probe the peer there.

        A refusal of a message that is not in flight any more is late. It is ignored, because the leader has learned
        more since."""
        if self._has_lost_its_log(peer, reply):
            peer.log_lost()
        elif self._is_late(peer, reply):
            return
        log, hint = self._state.log, reply.hint
        if hint.index < peer.match:
            # The peer has acknowledged more since, and does not lose that in this term.
            peer.to_probe(peer.match + 1)
            return
        agreed = log.agreement(min(hint.index, reply.rejected - 1), hint.term)
        if agreed is None:
            self._replicator.request_copy(peer, min(hint.index, log.base.index) + 1)
        else:
            peer.to_probe(agreed.index + 1)

    @staticmethod
    def _is_late(peer: Progress, reply: AppendReply) -> bool:
        if peer.state is PeerState.COPY or not peer.match < reply.rejected < peer.next:
            return True
        return peer.state is PeerState.PROBE and reply.rejected != peer.next - 1

    @staticmethod
    def _has_lost_its_log(peer: Progress, reply: AppendReply) -> bool:
        """Return true if a member without a vote refuses what it has acknowledged: its node has lost the replica.

        It may have got an empty one since. A member with a vote never gets one (durability rule 19)."""
        probed = peer.state is PeerState.COPY or (peer.state is PeerState.PROBE and peer.next == peer.match + 1)
        return probed and peer.catch_up is not None and reply.hint.index < reply.rejected == peer.match

    # -- events of the driver --------------------------------------------------------------------

    def on_peer_alive(self, event: PeerAlive) -> None:
        """Handle a peer's acknowledgement of a heartbeat of this term.

        If the peer is alive and has not answered a probe, the probe was lost. It is repeated, even if the peer has all
        entries: a peer that restarted learns the commit index from it, and an idle tablet sends nothing else."""
        leadership, peer = self._state.leadership, self._peer(event.peer)
        if leadership is None or peer is None or event.term != self._state.term:
            return
        peer.follows(event.heard_at_us)
        if peer.state is PeerState.COPY and peer.was_unreachable:
            self._replicator.probe_again(leadership, peer, event.heard_at_us)
        elif peer.state is PeerState.COPY:
            self._replicator.request_copy_again(leadership, peer)
        elif peer.waiting and event.heard_at_us >= peer.retry_at_us(self._retry_us):
            peer.retries += 1
            peer.waiting = False

    def on_beat_exception(self, event: BeatException) -> None:
        """Handle a peer's refusal of a heartbeat.

        The peer is in a later term, does not follow this leader yet, does not host the tablet, or its replica has
        failed."""
        state, leadership = self._state, self._state.leadership
        if event.peer not in state.peer_ids:
            state.count_refused("heartbeat refused by a node outside the config")
            return
        flaw = term_error(event.term, state.term)
        if flaw is not None:
            state.count_refused(f"heartbeat refused with a {flaw}")
            return
        if event.term > state.term:
            state.step_down(Cause.HIGHER_TERM, event.term)
            return
        peer = self._peer(event.peer)
        if leadership is None or peer is None:
            return
        peer.has_answered(state.now_us)
        if event.reason in (UNKNOWN, DAMAGED):
            self._replicator.request_replica(peer, damaged=event.reason == DAMAGED)
        elif peer.state is PeerState.COPY:
            peer.was_unreachable = True
            self._replicator.probe_again(leadership, peer, state.now_us)
        elif peer.state is PeerState.REPLICATE:
            peer.to_probe(peer.match + 1)
        elif event.reason != FAILED and state.now_us >= peer.sent_at_us + self._retry_us:
            peer.waiting = False  # A replica that has failed does not answer: the usual retries are enough.

    def on_unreachable(self, node: NodeId) -> None:
        """Note that a peer is unreachable: messages in flight may be lost, and the peer may have restarted.

        A restart may set back its commit index, which is not in its log. The peer is probed when the next retry is due.
        If it has all entries, it is probed once it is heard again."""
        peer = self._peer(node)
        if peer is None:
            return
        if peer.state is PeerState.COPY:
            peer.was_unreachable, peer.waiting = True, False
        else:
            peer.commit_known = 0
            probing, waited = peer.state is PeerState.PROBE, peer.waiting
            peer.to_probe(peer.next if probing else peer.match + 1, waiting=True)
            if not waited:  # Else a link that fails again and again would put the retry off for ever.
                peer.sent_at_us = self._state.now_us

    def on_range_sent(self, event: RangeSent) -> None:
        """Note that the driver sent less of a range than it was asked to."""
        peer = self._peer(event.peer)
        if peer is None or peer.state is not PeerState.REPLICATE:
            return
        if event.through is not None:
            peer.range_shortened(event.asked.index, event.through.index)
        elif event.asked.index > peer.match:
            peer.to_probe(peer.match + 1, waiting=True)
            peer.sent_at_us = self._state.now_us

    def on_range_compacted(self, event: RangeCompacted) -> None:
        """Note that the log no longer has entries that the driver was asked to send.

        Other peers may need them, too: ``replicate`` finds those. A peer that has them by now is not affected."""
        state, base = self._state, event.base.index
        state.collect_to(event.base)
        peer = self._peer(event.peer)
        if peer is None or peer.state is PeerState.COPY:
            return
        lacks = peer.match < base and event.asked.index > peer.match
        if peer.state is PeerState.REPLICATE and lacks:
            self._copy_and_probe(peer, peer.match + 1)
        elif peer.next <= base:
            self._copy_and_probe(peer, peer.next)
        else:
            self.on_range_sent(RangeSent(event.peer, event.asked, None))

    def _copy_and_probe(self, peer: Progress, first_index: int) -> None:
        """Request a copy, and probe the peer at the base that is known by now: if it was just copied, it has it."""
        leadership = self._state.leadership
        assert leadership is not None, "only a leader has peers"
        self._replicator.request_copy(peer, first_index)
        self._replicator.send_empty(leadership, peer, quiet=False)

    def _peer(self, node: NodeId) -> Progress | None:
        leadership = self._state.leadership
        return leadership.peers.get(node) if leadership is not None else None

    def on_persisted(self) -> None:
        """Note that this replica's log is durable further than before."""
        self._progressed = True

    # -- once per turn ---------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit what a majority holds, and answer confirmed reads. Called in a turn, after its events."""
        leadership = self._state.leadership
        if leadership is None:
            return
        self._progressed |= leadership.majority_changed
        leadership.majority_changed = False
        if leadership.reads.start_round():
            leadership.lease.round_begins(leadership.reads.round, self._state.now_us)
            self._replicator.send_read_round(leadership)
            self._progressed = True
        if self._progressed:
            self._progressed = False
            self._commit_rule.advance(leadership)
            self._commit_rule.advance_all_replicated(leadership)
            self._confirm_reads(leadership)

    def replicate(self) -> None:
        """Send to the peers what their windows allow. Called once in a turn."""
        if self._state.leadership is not None:
            self._replicator.replicate(self._state.leadership)

    def _confirm_reads(self, leadership: LeaderState) -> None:
        if self._state.lease_length_us:
            promised = [peer.round_promised for peer in leadership.voting]
            leadership.lease.promised(self._commit_rule.majority_value(leadership.reads.round, promised))
        if len(leadership.reads):
            rounds = [peer.round_acked for peer in leadership.voting]
            confirmed = self._commit_rule.majority_value(leadership.reads.round, rounds)
            self._state.ready.reads_ready.extend(leadership.reads.confirmed(confirmed))

    # -- time ------------------------------------------------------------------------------------

    def _quorum_deadline_us(self, leadership: LeaderState) -> int | None:
        """Return when the leader steps down if it hears from no peer: 1.5 T after it last heard from a majority."""
        if not leadership.voting:
            return None
        state = self._state
        heard = self._commit_rule.majority_value(state.now_us, [peer.heard_at_us for peer in leadership.voting])
        return heard + state.timeout_us * 3 // 2

    def _learners_deadline_us(self, leadership: LeaderState) -> int | None:
        """Return when a leader without other voters needs a ``Tick``, or ``None``.

        Heartbeats are delivered before a ``Tick`` that reaches a deadline. Without one, this leader would never learn
        that a learner has its copy now, and would not feed and promote it. Other leaders have the deadline of their
        majority."""
        if leadership.voting or not leadership.learners:
            return None
        return leadership.looked_at_us + self._state.timeout_us * 3 // 2

    def deadline_us(self) -> int | None:
        """Return when the leader needs a ``Tick`` next, in monotonic microseconds, or ``None``."""
        leadership = self._state.leadership
        if leadership is None:
            return None
        handover = leadership.handover.deadline_us if leadership.handover is not None else None
        heartbeats = (self._quorum_deadline_us(leadership), self._learners_deadline_us(leadership))
        due = (*heartbeats, self._replicator.deadline_us(leadership), handover)
        return min((at for at in due if at is not None), default=None)

    def _look_at_learners(self, leadership: LeaderState) -> None:
        """Note that the heartbeats up to now were delivered.

        If the tick is late by more than T, this node was suspended, and heard no answer meanwhile. Other leaders step
        down then."""
        due_us, now_us = self._learners_deadline_us(leadership), self._state.now_us
        if due_us is None or now_us < due_us:
            return
        leadership.looked_at_us = now_us
        if now_us - due_us > self._state.timeout_us:
            for peer in leadership.learners:
                peer.leader_was_suspended(now_us - due_us, now_us)

    def tick(self) -> None:
        """Step down without a majority, else repeat what was not answered in time."""
        leadership = self._state.leadership
        if leadership is None:
            return
        self._look_at_learners(leadership)
        quorum = self._quorum_deadline_us(leadership)
        if quorum is not None and self._state.now_us >= quorum:
            self._state.step_down(Cause.QUORUM_LOST)
        else:
            self._replicator.tick(leadership)
