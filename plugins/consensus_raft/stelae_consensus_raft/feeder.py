"""What a leader sends to each peer, and when: probes, ranges of entries, news of the commit index.

Called once per turn, so that all of a turn's proposals travel in one message per peer."""

from __future__ import annotations

from stelae.spi.consensus import CopyRequest, Range
from stelae.spi.ids import OpId
from stelae_consensus_raft.messages import AppendEntries
from stelae_consensus_raft.progress import PeerState, Progress
from stelae_consensus_raft.replica import Leadership, Replica

IDLE_LOG_BYTES = 64 << 10
"""A peer of an idle tablet gets a message about ``all_replicated`` of its own if that frees so much of its log."""

IDLE_RETRIES = 4
"""A tablet is idle for a peer to which nothing was sent for so many retry intervals."""


class Feeder:
    """Sends to the peers of a leader within their windows."""

    __slots__ = ("_idle_us", "_messages_max", "_news_us", "_replica", "_retry_us", "_settings", "_window_bytes")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._settings = replica.settings
        self._messages_max = replica.settings.in_flight_messages_max
        self._window_bytes = replica.settings.in_flight_bytes_max
        self._retry_us = replica.settings.append_retry_ms * 1000
        self._news_us = replica.settings.commit_news_ms * 1000
        self._idle_us = self._retry_us * IDLE_RETRIES

    def feed(self, lead: Leadership) -> None:
        """Send every peer what it can take now."""
        last_index = self._replica.log.last_index
        for peer in lead.peers.values():
            if peer.state is PeerState.REPLICATE:
                if peer.next <= self._replica.log.base.index:
                    self.ask_copy(peer, peer.next)
                    continue
                if peer.next <= last_index:
                    self._replicate(lead, peer, last_index)
                self._tell_commit(lead, peer)
            elif peer.state is PeerState.PROBE and not peer.waiting:
                self._probe(lead, peer)

    def _replicate(self, lead: Leadership, peer: Progress, last_index: int) -> None:
        while (
            peer.next <= last_index
            and peer.in_flight_count < self._messages_max
            and peer.in_flight_bytes < self._window_bytes
        ):
            prev_index = peer.next - 1
            end = self._send_range(lead, peer)
            peer.sent(end, self._replica.sizes.between(prev_index, end), self._replica.now_us)
            peer.commit_sent = max(peer.commit_sent, min(self._replica.commit, end))

    def _tell_commit(self, lead: Leadership, peer: Progress) -> None:
        """A peer hears of a new commit index at once, and need not answer, unless it is busy.

        One that has just been told several times is: the next entries are about to leave and carry
        the news, which saves it and this leader half of their messages."""
        now_us = self._replica.now_us
        if self._has_news(peer) and now_us >= peer.news_from_us(self._news_us):
            peer.told(self._news_us, now_us)
            self.send_empty(lead, peer, quiet=True)

    def would_tell(self, peer: Progress, match: int, commit_known: int) -> bool:
        """Whether a peer that acknowledges ``match`` is to hear of a commit index at once."""
        known = min(self._replica.commit, max(peer.match, match))
        news = known > peer.commit_sent and known > max(peer.commit_known, commit_known)
        return news and self._replica.now_us >= peer.news_from_us(self._news_us)

    def _has_news(self, peer: Progress) -> bool:
        known = min(self._replica.commit, peer.match)
        return known > peer.commit_sent and known > peer.commit_known and peer.state is PeerState.REPLICATE

    def _probe(self, lead: Leadership, peer: Progress) -> None:
        """Ask a peer whether its log agrees before ``next``; entries travel along."""
        if peer.next <= self._replica.log.base.index:
            self.ask_copy(peer, peer.next)
            return
        peer.waiting = True
        peer.sent_at_us = self._replica.now_us
        if peer.next <= self._replica.log.last_index:
            self._send_range(lead, peer)
        else:
            self._send_at(lead, peer, peer.next - 1, quiet=False)

    def _send_range(self, lead: Leadership, peer: Progress) -> int:
        """Send entries from ``next`` on, as many as one message takes; return where they end."""
        replica, settings = self._replica, self._settings
        prev_index = peer.next - 1
        last_index = min(replica.log.last_index, prev_index + settings.append_entries_max)
        end = replica.sizes.last_within(prev_index, last_index, settings.append_bytes_max)
        prev = replica.log.op_id_at(prev_index)
        message = self._message(lead, peer, prev, quiet=False)
        last = replica.log.op_id_at(end)
        replica.outbox.ranges.append(Range(peer.node_id, message, replica.term, prev, last))
        return end

    def send_empty(self, lead: Leadership, peer: Progress, *, quiet: bool) -> None:
        """Send an append without entries, at a position that the peer is known to have."""
        self._send_at(lead, peer, max(peer.match, self._replica.log.base.index), quiet=quiet)

    def _send_at(self, lead: Leadership, peer: Progress, index: int, *, quiet: bool) -> None:
        replica = self._replica
        # A peer that is probed for is asked again in time, however often it is asked to confirm a read meanwhile.
        if not peer.in_flight_count and peer.state is not PeerState.PROBE:
            peer.sent_at_us = replica.now_us
        peer.commit_sent = max(peer.commit_sent, min(replica.commit, index))
        prev = replica.log.op_id_at(index)
        replica.send(peer.node_id, self._message(lead, peer, prev, quiet=quiet))

    def _message(self, lead: Leadership, peer: Progress, prev: OpId, *, quiet: bool) -> AppendEntries:
        replica = self._replica
        peer.all_replicated_sent = replica.all_replicated
        return AppendEntries(
            term=replica.term,
            prev=prev,
            commit=replica.commit,
            round=lead.reads.round,
            quiet=quiet,
            all_replicated=replica.all_replicated,
        )

    # -- peers that need a copy ------------------------------------------------------------------

    def ask_copy(self, peer: Progress, first_index: int) -> None:
        """The peer needs entries that the log no longer has: request a copy, once."""
        if peer.state is not PeerState.COPY:
            peer.to_copy()
            self._replica.outbox.copy_requests.append(CopyRequest(peer.node_id, first_index))

    def ask_again(self, lead: Leadership, peer: Progress, heard_at_us: int) -> None:
        """A peer in COPY is alive: if it was away, ask whether its log reaches the base by now. Reads no entry."""
        if peer.was_away and (not peer.waiting or heard_at_us >= peer.retry_at_us(self._retry_us)):
            peer.waiting = True
            self.send_empty(lead, peer, quiet=False)

    # -- repeating what was not answered ---------------------------------------------------------

    def _owed(self, peer: Progress) -> bool:
        """True if the peer lacks entries or news and an answer is expected from it.

        One in PROBE that has all entries is left alone until it is heard: asking a dead peer about every
        idle tablet again and again would help nobody."""
        replica = self._replica
        if peer.match < replica.log.last_index:
            return peer.state is not PeerState.COPY
        return peer.state is PeerState.REPLICATE and peer.commit_known < replica.commit

    def _owes_idle(self, peer: Progress) -> bool:
        """True if the peer keeps much of its log only because it got no message since all members hold the log."""
        replica = self._replica
        sent, known = peer.all_replicated_sent, replica.all_replicated
        if sent >= known or peer.state is not PeerState.REPLICATE or peer.in_flight_count:
            return False
        return replica.sizes.between(sent, known) >= IDLE_LOG_BYTES

    def deadline_us(self, lead: Leadership) -> int | None:
        """When something unanswered is to be repeated next, or news may be told."""
        due = [p.retry_at_us(self._retry_us) for p in lead.peers.values() if self._owed(p)]
        due += [p.news_from_us(self._news_us) for p in lead.peers.values() if self._has_news(p)]
        due += [p.sent_at_us + self._idle_us for p in lead.peers.values() if self._owes_idle(p)]
        if len(lead.reads):
            due.append(lead.reads_sent_at_us + self._retry_us)
        return min(due, default=None)

    def tick(self, lead: Leadership) -> None:
        """Repeat what has gone unanswered for too long."""
        now_us = self._replica.now_us
        for peer in lead.peers.values():
            if self._owed(peer) and now_us >= peer.retry_at_us(self._retry_us):
                self._repeat(lead, peer)
            elif self._owes_idle(peer) and now_us >= peer.sent_at_us + self._idle_us:
                self.send_empty(lead, peer, quiet=True)
        if len(lead.reads) and now_us >= lead.reads_sent_at_us + self._retry_us:
            self.ask_round(lead)

    def _repeat(self, lead: Leadership, peer: Progress) -> None:
        peer.retries += 1
        if peer.state is PeerState.PROBE:
            peer.waiting = False
        elif peer.in_flight_count:
            peer.to_probe(peer.match + 1)
        else:
            self.send_empty(lead, peer, quiet=False)

    def ask_round(self, lead: Leadership) -> None:
        """Ask every voter to confirm that this replica still leads."""
        lead.reads_sent_at_us = self._replica.now_us
        for peer in lead.voting:
            if peer.round_acked < lead.reads.round:
                self.send_empty(lead, peer, quiet=False)
