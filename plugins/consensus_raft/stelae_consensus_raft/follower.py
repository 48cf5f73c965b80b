"""The follower's side of replication: checks, takes and acknowledges what a leader sends.

An acknowledgement says how far the log is durable *and* equal to the leader's. It leaves with the
Ready that makes this true, or at once where it is true already."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.consensus import LeaderAlive, Role
from stelae.spi.ids import NodeId, OpId
from stelae.spi.log import Entry
from stelae_consensus_raft.messages import AppendEntries, AppendRefusal, AppendReply
from stelae_consensus_raft.replica import Replica
from stelae_consensus_raft.transitions import Cause


class Follower:
    """Takes the appends of a leader; one acknowledgement per turn covers all of them."""

    __slots__ = ("_ack_match", "_ack_round", "_ack_term", "_replica")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._ack_term = 0
        self._ack_match = 0
        self._ack_round = 0

    # -- the leader's word -----------------------------------------------------------------------

    def on_append(self, sender: NodeId, message: AppendEntries, entries: Sequence[Entry]) -> None:
        """Take an append: refuse it whole, or make the log agree with it and acknowledge."""
        replica = self._replica
        if message.term < replica.term:
            self._refuse(sender, message, AppendRefusal.STALE_TERM, OpId(0, 0))
            return
        if not self._follow(sender, message.term):
            return
        hint = self._disagreement(message.prev)
        if hint is not None:
            self._refuse(sender, message, AppendRefusal.MISMATCH, hint)
            return
        new = self._unheld(entries)
        if new:
            replica.append(new)
        verified = message.prev.index + len(entries)
        replica.commit_to(min(message.commit, verified))
        replica.replicated_on_all(message.all_replicated)
        if not message.quiet or new:
            self._acknowledge(verified, message.round)

    def _follow(self, sender: NodeId, term: int) -> bool:
        """Recognise the leader of ``term``; false if that term has another one."""
        replica = self._replica
        if term > replica.term:
            replica.step_down(Cause.HIGHER_TERM, term)
        elif replica.role is Role.LEADER or replica.leader not in (None, sender):
            replica.refuse_peer("second leader in one term")
            return False
        if replica.leader is None:
            replica.move(Cause.LEADER_HEARD)
            replica.leader = sender
            replica.patience = 1
        replica.leader_heard_at_us = replica.now_us
        replica.rest()
        return True

    def on_leader_alive(self, event: LeaderAlive) -> None:
        """The leader's node named this tablet in a heartbeat. Old news changes nothing.

        The driver delivers it before the ``Tick`` of its turn, so it may be ahead of our clock."""
        replica, heard = self._replica, event.heard_at_us
        before = replica.leader_heard_at_us
        fresh = replica.now_us - heard < replica.timeout_us and (before is None or heard > before)
        if event.term != replica.term or not fresh or event.leader == replica.node_id:
            return
        if event.leader != replica.leader and replica.config.member(event.leader) is None:
            replica.refuse_peer("heartbeat of a stranger")
            return
        if self._follow(event.leader, event.term):
            replica.leader_heard_at_us = heard
            if replica.election_deadline_us is not None:
                replica.election_deadline_us += heard - replica.now_us

    def _disagreement(self, prev: OpId) -> OpId | None:
        """Where agreement is possible at best if our log lacks ``prev``; ``None`` if it has it.

        What lies at or below the log's base is committed, so every leader has the same there."""
        log = self._replica.log
        if prev.index < log.base.index or log.holds(prev):
            return None
        return log.agreement(prev.index, prev.term) or log.base

    def _unheld(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """The entries that the log does not have yet; a conflicting suffix is voided."""
        replica, log = self._replica, self._replica.log
        if not entries or entries[0].op_id.index == log.last_index + 1:
            return entries
        for position, entry in enumerate(entries):
            term, index = entry.op_id
            if index < log.base.index:
                continue
            held = log.term_at(index)
            if held == term:
                continue
            if held is not None:
                replica.truncate(index)
            return entries[position:]
        return ()

    # -- answers ---------------------------------------------------------------------------------

    def _refuse(self, sender: NodeId, message: AppendEntries, refusal: AppendRefusal, hint: OpId) -> None:
        replica = self._replica
        reply = AppendReply(
            term=replica.term,
            commit=replica.commit,
            round=message.round,
            refusal=refusal,
            rejected=message.prev.index,
            hint=hint,
        )
        replica.send(sender, reply)

    def _acknowledge(self, verified: int, round_number: int) -> None:
        if self._ack_term != self._replica.term:
            self._ack_term, self._ack_match, self._ack_round = self._replica.term, 0, 0
        self._ack_match = max(self._ack_match, verified)
        self._ack_round = max(self._ack_round, round_number)

    def log_failed(self) -> None:
        """What was about to be acknowledged is lost."""
        self._ack_term = 0

    def flush(self) -> None:
        """Send the acknowledgement of this turn."""
        if not self._ack_term:
            return
        replica, term = self._replica, self._ack_term
        self._ack_term = 0
        if term != replica.term or replica.leader is None or replica.role is Role.LEADER:
            return
        reply = AppendReply(term=term, match=self._ack_match, commit=replica.commit, round=self._ack_round)
        if self._ack_match > replica.durable.index:
            replica.send_durable(replica.leader, reply)
        else:
            replica.send(replica.leader, reply)
