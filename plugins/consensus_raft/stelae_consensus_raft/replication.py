"""Replication: what a leader sends to each peer, and when.

The leader sends probes, ranges of entries, and messages that carry only a commit index. ``progress`` keeps what it
knows of each peer. ``Replicator.replicate`` is called once in a turn, so all proposals of the turn are in one message
to each peer."""

from __future__ import annotations

from stelae.spi.consensus import CopyRequest, Range
from stelae.spi.ids import OpId
from stelae_consensus_raft.leader_state import LeaderState
from stelae_consensus_raft.messages import AppendEntries
from stelae_consensus_raft.progress import PeerState, Progress
from stelae_consensus_raft.raft_state import RaftState

IDLE_LOG_BYTES = 64 << 10
"""A peer of an idle tablet gets a message with only ``all_replicated`` if it frees this much of the peer's log."""

IDLE_RETRIES = 4
"""A tablet is idle for a peer if the leader sent it nothing for this number of retry intervals."""


class Replicator:
    """Sends to the peers of a leader, each within its window."""

    __slots__ = ("_commit_notice_us", "_idle_us", "_messages_max", "_retry_us", "_settings", "_state", "_window_bytes")

    def __init__(self, state: RaftState) -> None:
        self._state = state
        self._settings = state.settings
        self._messages_max = state.settings.in_flight_messages_max
        self._window_bytes = state.settings.in_flight_bytes_max
        self._retry_us = state.settings.append_retry_ms * 1000
        self._commit_notice_us = state.settings.commit_notice_ms * 1000
        self._idle_us = self._retry_us * IDLE_RETRIES

    def replicate(self, leadership: LeaderState) -> None:
        """Send each peer what its window allows."""
        last_index = self._state.log.last_index
        for peer in leadership.peers.values():
            if peer.state is PeerState.REPLICATE:
                if peer.next <= self._state.log.base.index:
                    self.request_copy(peer, peer.next)
                    continue
                if peer.next <= last_index:
                    self._send_ranges(leadership, peer, last_index)
                self._send_commit(leadership, peer)
            elif peer.state is PeerState.PROBE and not peer.waiting:
                self._probe(leadership, peer)

    def _send_ranges(self, leadership: LeaderState, peer: Progress, last_index: int) -> None:
        while (
            peer.next <= last_index
            and peer.in_flight_count < self._messages_max
            and peer.in_flight_bytes < self._window_bytes
        ):
            prev_index = peer.next - 1
            end = self._send_range(leadership, peer)
            peer.add_in_flight(end, self._state.sizes.between(prev_index, end), self._state.now_us)
            peer.commit_sent = max(peer.commit_sent, min(self._state.commit, end))

    def _send_commit(self, leadership: LeaderState, peer: Progress) -> None:
        """Send a peer a new commit index in a message of its own, which it need not answer, unless it is busy.

        A peer is busy if it has just got several such messages. Then the next entries will be sent soon, and carry the
        commit index. This saves both sides half of their messages."""
        now_us = self._state.now_us
        if self._has_new_commit(peer) and now_us >= peer.commit_only_from_us(self._commit_notice_us):
            peer.add_commit_only(self._commit_notice_us, now_us)
            self.send_empty(leadership, peer, quiet=True)

    def would_send_commit(self, peer: Progress, match: int, commit_known: int) -> bool:
        """Return true if a peer that acknowledges ``match`` would get a message with a commit index at once."""
        known = min(self._state.commit, max(peer.match, match))
        new = known > peer.commit_sent and known > max(peer.commit_known, commit_known)
        return new and self._state.now_us >= peer.commit_only_from_us(self._commit_notice_us)

    def _has_new_commit(self, peer: Progress) -> bool:
        known = min(self._state.commit, peer.match)
        return known > peer.commit_sent and known > peer.commit_known and peer.state is PeerState.REPLICATE

    def _probe(self, leadership: LeaderState, peer: Progress) -> None:
        """Ask a peer whether its log holds the entry before ``next``. The message carries entries, too."""
        if peer.next <= self._state.log.base.index:
            self.request_copy(peer, peer.next)
            return
        peer.waiting = True
        peer.sent_at_us = self._state.now_us
        if peer.next <= self._state.log.last_index:
            self._send_range(leadership, peer)
        else:
            self._send_at(leadership, peer, peer.next - 1, quiet=False)

    def _send_range(self, leadership: LeaderState, peer: Progress) -> int:
        """Send entries from ``next`` on, as many as fit into one message. Returns the index of the last one."""
        state, settings = self._state, self._settings
        prev_index = peer.next - 1
        last_index = min(state.log.last_index, prev_index + settings.append_entries_max)
        end = state.sizes.last_within(prev_index, last_index, settings.append_bytes_max)
        prev = state.log.op_id_at(prev_index)
        message = self._message(leadership, peer, prev, quiet=False)
        last = state.log.op_id_at(end)
        state.ready.ranges.append(Range(peer.node_id, message, state.term, prev, last))
        return end

    def send_empty(self, leadership: LeaderState, peer: Progress, *, quiet: bool) -> None:
        """Send an append without entries, at a position that the peer's log is known to hold."""
        self._send_at(leadership, peer, max(peer.match, self._state.log.base.index), quiet=quiet)

    def _send_at(self, leadership: LeaderState, peer: Progress, index: int, *, quiet: bool) -> None:
        state = self._state
        # In PROBE the time stays: read rounds must not delay the retry of the probe.
        if not peer.in_flight_count and peer.state is not PeerState.PROBE:
            peer.sent_at_us = state.now_us
        peer.commit_sent = max(peer.commit_sent, min(state.commit, index))
        prev = state.log.op_id_at(index)
        state.send(peer.node_id, self._message(leadership, peer, prev, quiet=quiet))

    def _message(self, leadership: LeaderState, peer: Progress, prev: OpId, *, quiet: bool) -> AppendEntries:
        state = self._state
        peer.all_replicated_sent = state.all_replicated
        return AppendEntries(
            term=state.term,
            prev=prev,
            commit=state.commit,
            round=leadership.reads.round,
            session=peer.session,
            quiet=quiet,
            all_replicated=state.all_replicated,
        )

    # -- peers that need a copy ------------------------------------------------------------------

    def request_copy(self, peer: Progress, first_index: int) -> None:
        """Request a copy for a peer that needs entries which the log no longer has. A second request has no effect."""
        if peer.state is not PeerState.COPY:
            peer.to_copy()
            peer.asked_at_us = self._state.now_us
            self._state.ready.copy_requests.append(CopyRequest(peer.node_id, first_index))

    def request_copy_again(self, leadership: LeaderState, peer: Progress) -> None:
        """Repeat the request for a peer in COPY that is alive, and probe it: its log may reach the base by now.

        The request may be lost, or refused for the moment, for example because the peer has no free copy slot. A peer
        that was sent a new replica needs no copy if the log has every entry for it: it is probed only."""
        if self._state.now_us >= peer.ask_again_at_us(self._retry_us):
            peer.retries += 1
            peer.asked_at_us = self._state.now_us
            if peer.match < self._state.log.base.index:
                self._state.ready.copy_requests.append(CopyRequest(peer.node_id, peer.match + 1))
            self.send_empty(leadership, peer, quiet=False)

    def request_replica(self, peer: Progress, *, damaged: bool = False) -> None:
        """Request a replica for a peer that does not host the tablet, or whose replica is damaged, until it has one.

        The request may be lost on its way, and only the peer knows when it has a replica. Once it does not refuse
        heartbeats any more, it is probed."""
        again = peer.state is PeerState.COPY
        if again:
            peer.was_unreachable = True
        if again and self._state.now_us < peer.ask_again_at_us(self._retry_us):
            return
        if again:
            peer.retries += 1
        else:
            peer.to_copy()
            peer.was_unreachable = True
        peer.asked_at_us = self._state.now_us
        first_index = peer.match + 1 if damaged else 1
        request = CopyRequest(peer.node_id, first_index, hosted=damaged, damaged=damaged)
        self._state.ready.copy_requests.append(request)

    def probe_again(self, leadership: LeaderState, peer: Progress, heard_at_us: int) -> None:
        """Probe a peer in COPY that is reachable again: its log may reach the base by now. Reads no entry."""
        if peer.was_unreachable and (not peer.waiting or heard_at_us >= peer.retry_at_us(self._retry_us)):
            peer.waiting = True
            self.send_empty(leadership, peer, quiet=False)

    # -- repeating what was not answered ---------------------------------------------------------

    def _needs_retry(self, peer: Progress) -> bool:
        """Return true if the peer lacks entries or the commit index, so that an unanswered message must be repeated.

        A peer in PROBE that has all entries is not asked again until it is heard. Otherwise a leader of many idle
        tablets would send retries to a dead node for each of them."""
        state = self._state
        if peer.match < state.log.last_index:
            return peer.state is not PeerState.COPY
        return peer.state is PeerState.REPLICATE and peer.commit_known < state.commit

    def _needs_idle_message(self, peer: Progress) -> bool:
        """Return true if the peer keeps much of its log only because it was not sent a newer all-replicated index."""
        state = self._state
        sent, known = peer.all_replicated_sent, state.all_replicated
        if sent >= known or peer.state is not PeerState.REPLICATE or peer.in_flight_count:
            return False
        return state.sizes.between(sent, known) >= IDLE_LOG_BYTES

    def _asks_for_rows(self, leadership: LeaderState, peer: Progress) -> bool:
        """Return true if a peer must be asked from time to time whether it has all rows, until it is a voter.

        An idle tablet sends nothing else, and the peer can say it only in an answer."""
        heard = self._state.now_us - peer.heard_at_us < self._state.timeout_us
        waits = peer.log_only is True or peer in leadership.witnesses
        return waits and heard and peer.state is PeerState.REPLICATE and not peer.in_flight_count

    def deadline_us(self, leadership: LeaderState) -> int | None:
        """Return when the next retry or message with only a commit index is due, or ``None``."""
        due = [p.retry_at_us(self._retry_us) for p in leadership.peers.values() if self._needs_retry(p)]
        due += [
            p.commit_only_from_us(self._commit_notice_us) for p in leadership.peers.values() if self._has_new_commit(p)
        ]
        due += [
            p.sent_at_us + self._idle_us
            for p in leadership.peers.values()
            if self._needs_idle_message(p) or self._asks_for_rows(leadership, p)
        ]
        if len(leadership.reads):
            due.append(leadership.reads_sent_at_us + self._retry_us)
        return min(due, default=None)

    def tick(self, leadership: LeaderState) -> None:
        """Repeat messages that were not answered in time."""
        now_us = self._state.now_us
        for peer in leadership.peers.values():
            if self._needs_retry(peer) and now_us >= peer.retry_at_us(self._retry_us):
                self._repeat(leadership, peer)
            elif self._needs_idle_message(peer) and now_us >= peer.sent_at_us + self._idle_us:
                self.send_empty(leadership, peer, quiet=True)
            elif self._asks_for_rows(leadership, peer) and now_us >= peer.sent_at_us + self._idle_us:
                self.send_empty(leadership, peer, quiet=False)
        if len(leadership.reads) and now_us >= leadership.reads_sent_at_us + self._retry_us:
            self.send_read_round(leadership)

    def _repeat(self, leadership: LeaderState, peer: Progress) -> None:
        peer.retries += 1
        if peer.state is PeerState.PROBE:
            peer.waiting = False
        elif peer.in_flight_count:
            peer.to_probe(peer.match + 1)
        else:
            self.send_empty(leadership, peer, quiet=False)

    def send_read_round(self, leadership: LeaderState) -> None:
        """Ask every voter that has not confirmed the newest read round to confirm that this replica still leads."""
        leadership.reads_sent_at_us = self._state.now_us
        for peer in leadership.voting:
            if peer.round_acked < leadership.reads.round:
                self.send_empty(leadership, peer, quiet=False)
