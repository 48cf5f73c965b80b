"""Log matching on the follower: the check of an append, the replacement of a conflicting suffix, the acknowledgement.

The rule (Raft paper, 5.3): a follower accepts entries only if its log holds the entry before them, with the same term.
If an entry of its log conflicts with a new one, it replaces that entry and all after it (durability rule 5).

An acknowledgement says up to which index the log is durable and equal to the leader's. It is sent with the Ready that
makes this true, or at once if it is true already."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.consensus import Role
from stelae.spi.consensus_events import LeaderAlive
from stelae.spi.ids import NodeId, OpId
from stelae.spi.log import Entry
from stelae.spi.recovery_epoch import recovery_epoch
from stelae_consensus_raft.messages import AppendEntries, AppendRefusal, AppendReply
from stelae_consensus_raft.raft_state import BrokenInvariant, RaftState
from stelae_consensus_raft.transitions import Cause


class Follower:
    """Handles the appends and heartbeats of a leader. One acknowledgement in a turn covers all appends of the turn."""

    __slots__ = ("_ack_match", "_ack_round", "_ack_session", "_ack_term", "_state")

    def __init__(self, state: RaftState) -> None:
        self._state = state
        self._ack_term = 0
        self._ack_match = 0
        self._ack_round = 0
        self._ack_session = 0

    # -- appends and heartbeats ------------------------------------------------------------------

    def on_append(self, sender: NodeId, message: AppendEntries, entries: Sequence[Entry]) -> None:
        """Handle an append: refuse it as a whole, or make the log agree with it and acknowledge it."""
        state = self._state
        if message.term < state.term:
            self._refuse(sender, message, AppendRefusal.STALE_TERM, OpId(0, 0))
            return
        if state.config.member(sender) is None and not state.stands_down and self._contradicts_committed(entries):
            # A leader that this replica does not know yet has every committed entry. A sender without one is no leader.
            state.count_refused("append of a node outside the config, against committed entries")
            return
        if not self._follow(sender, message.term):
            return
        if state.stands_down:
            self._check_before_recovery(message.prev, entries)
        hint = self._mismatch_hint(message.prev)
        if hint is not None:
            self._refuse(sender, message, AppendRefusal.MISMATCH, hint)
            return
        new = self._missing_entries(entries)
        if new:
            state.append(new)
        verified = message.prev.index + len(entries)
        state.commit_to(min(message.commit, verified))
        state.advance_all_replicated(message.all_replicated)
        if not message.quiet or new:
            self._acknowledge(verified, message)

    def _follow(self, sender: NodeId, term: int) -> bool:
        """Follow ``sender`` as the leader of ``term``. Returns false if that term has another leader."""
        state = self._state
        if term > state.term:
            state.step_down(Cause.HIGHER_TERM, term)
        elif state.role is Role.LEADER or state.leader not in (None, sender):
            state.count_refused("second leader in one term")
            return False
        if state.leader is None:
            state.change_role(Cause.LEADER_HEARD)
            state.leader = sender
            state.backoff_factor = 1
        state.leader_heard_at_us = state.now_us
        state.reset_election_deadline()
        return True

    def on_leader_alive(self, event: LeaderAlive) -> None:
        """Handle a heartbeat of the leader's node that names this tablet. An old heartbeat changes nothing.

        The driver delivers it before the ``Tick`` of its turn, so its time may be ahead of ``now_us``."""
        state, heard = self._state, event.heard_at_us
        before = state.leader_heard_at_us
        fresh = state.now_us - heard < state.timeout_us and (before is None or heard > before)
        if event.term != state.term or not fresh or event.leader == state.node_id:
            return
        if event.leader != state.leader and state.config.member(event.leader) is None:
            state.count_refused("heartbeat of a node outside the config")
            return
        if self._follow(event.leader, event.term):
            state.leader_heard_at_us = heard
            if state.election_deadline_us is not None:
                state.election_deadline_us += heard - state.now_us

    def _mismatch_hint(self, prev: OpId) -> OpId | None:
        """Return ``None`` if the log holds ``prev``, else the last position at which the logs can agree.

        Entries at or below the log's base are committed, so every leader has the same entries there."""
        log = self._state.log
        if prev.index < log.base.index or log.holds(prev):
            return None
        return log.agreement(prev.index, prev.term) or log.base

    def _check_before_recovery(self, prev: OpId, entries: Sequence[Entry]) -> None:
        """Check that a log that a recovery left behind can still become the recovered one (durability rule 29).

        Only in this case a correct leader may lack entries that are committed here: those that the survivor never had.
        They cannot be removed from the store, so this replica must be replaced. The same holds if the log has lost
        committed entries by a failed write: the survivor may have others."""
        state, log = self._state, self._state.log
        if prev.index < log.base.index or log.last_index < state.commit or self._contradicts_committed(entries):
            epoch = recovery_epoch(state.term)
            raise BrokenInvariant(
                f"recovery {epoch} of the tablet left this replica behind: its log ends at {log.last}, and it has "
                "committed entries that the survivor never had; delete this replica, and let the leader copy another"
            )

    def _contradicts_committed(self, entries: Sequence[Entry]) -> bool:
        """Whether one of these entries has another term than the entry at its index, which is committed here."""
        state = self._state
        committed = max(state.commit, state.configs.committed.op_id.index)
        for entry in entries:
            term, index = entry.op_id
            if index > committed:
                return False
            if state.log.term_at(index) not in (None, term):
                return True
        return False

    def _missing_entries(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return the entries that the log does not have yet, and remove a conflicting suffix of the log."""
        state, log = self._state, self._state.log
        if not entries or entries[0].op_id.index == log.last_index + 1:
            return entries
        for position, entry in enumerate(entries):
            term, index = entry.op_id
            if index < log.base.index:
                continue
            term_here = log.term_at(index)
            if term_here == term:
                continue
            if term_here is not None:
                state.truncate(index)
            return entries[position:]
        return ()

    # -- answers ---------------------------------------------------------------------------------

    def _refuse(self, sender: NodeId, message: AppendEntries, refusal: AppendRefusal, hint: OpId) -> None:
        state = self._state
        reply = AppendReply(
            term=state.term,
            commit=state.commit,
            round=message.round,
            session=message.session,
            refusal=refusal,
            rejected=message.prev.index,
            hint=hint,
            withholds_us=state.promised_us() if message.term == state.term else 0,
            log_only=state.log_only,
        )
        state.send(sender, reply)

    def _acknowledge(self, verified: int, message: AppendEntries) -> None:
        if self._ack_term != self._state.term:
            self._ack_term, self._ack_match, self._ack_round, self._ack_session = self._state.term, 0, 0, 0
        self._ack_match = max(self._ack_match, verified)
        self._ack_round = max(self._ack_round, message.round)
        self._ack_session = max(self._ack_session, message.session)

    def log_failed(self) -> None:
        """Drop the acknowledgement of this turn: its entries are lost."""
        self._ack_term = 0

    def flush(self) -> None:
        """Send the acknowledgement of this turn, if there is one."""
        if not self._ack_term:
            return
        state, term = self._state, self._ack_term
        self._ack_term = 0
        if term != state.term or state.leader is None or state.role is Role.LEADER:
            return
        reply = AppendReply(
            term=term,
            match=self._ack_match,
            commit=state.commit,
            round=self._ack_round,
            session=self._ack_session,
            withholds_us=state.promised_us(),
            log_only=state.log_only,
        )
        if self._ack_match > state.durable.index:
            state.send_durable(state.leader, reply)
        else:
            state.send(state.leader, reply)
