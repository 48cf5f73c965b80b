"""Proposals and reads of clients, as the leader accepts or rejects them."""

from __future__ import annotations

from stelae.spi.consensus import Accepted, ReadReady, Role
from stelae.spi.consensus_events import Proposal, Propose, ReadRequest
from stelae.spi.ids import OpId
from stelae.spi.log import ENTRY_BYTES_MAX, ENTRY_OVERHEAD_BYTES, Entry, EntryKind
from stelae.spi.rejections import RejectReason
from stelae_consensus_raft.leader_state import LeaderState
from stelae_consensus_raft.raft_state import RaftState

CORE_KINDS = (EntryKind.NOOP, EntryKind.CONFIG)
"""Kinds of entries that only the core itself appends to the log."""


class ClientRequests:
    """Accepts the requests of clients. A replica that does not lead, or does not serve yet, rejects them all."""

    __slots__ = ("_state",)

    def __init__(self, state: RaftState) -> None:
        self._state = state

    def propose(self, event: Propose) -> None:
        """Append proposals to the log, in order. Each one is accepted or rejected by its token.

        Those behind one that finds no room are rejected as well, even if they are small enough: a client's operations
        may be in both, and one that is sent again must not get behind a later one."""
        state, leadership = self._state, self._state.leadership
        refusal = self._not_serving()
        if refusal is None and leadership is not None and leadership.handover is not None:
            refusal = RejectReason.TRANSFERRING
        if refusal is not None:
            for proposal in event.proposals:
                state.reject(proposal.token, refusal)
            return
        pending = state.sizes.between(state.commit, state.log.last_index)
        term, index = state.term, state.log.last_index
        entries, accepted = [], state.ready.accepted
        has_room = True
        for proposal in event.proposals:
            refusal = self._proposal_refusal(proposal, pending) if has_room else RejectReason.OVERLOADED
            if refusal is not None:
                has_room = has_room and refusal is not RejectReason.OVERLOADED
                state.reject(proposal.token, refusal)
                continue
            index += 1
            op_id = OpId(term, index)
            entries.append(Entry(op_id, proposal.kind, 0, proposal.body))
            accepted.append(Accepted(proposal.token, op_id))
            pending += len(proposal.body) + ENTRY_OVERHEAD_BYTES
        if entries:
            state.append(entries)

    def _not_serving(self) -> RejectReason | None:
        """Return why this replica takes no requests, or ``None`` (durability rule 10)."""
        if self._state.role is not Role.LEADER:
            return RejectReason.NOT_LEADER
        return None if self._state.serving else RejectReason.CONFIGURING

    def _proposal_refusal(self, proposal: Proposal, pending_bytes: int) -> RejectReason | None:
        if len(proposal.body) > ENTRY_BYTES_MAX:
            return RejectReason.TOO_LARGE
        if proposal.kind in CORE_KINDS:
            return RejectReason.UNSUPPORTED
        size = len(proposal.body) + ENTRY_OVERHEAD_BYTES
        limit = self._state.settings.proposals_pending_bytes_max
        # A proposal above the limit is accepted if nothing is pending. Otherwise it could never be.
        if pending_bytes and pending_bytes + size > limit:
            return RejectReason.OVERLOADED
        return None

    def read(self, event: ReadRequest) -> None:
        """Answer a read, or queue it until a majority confirms this leader. Nothing is written.

        See ``read_lease`` and ``read_index``."""
        state, leadership = self._state, self._state.leadership
        refusal = self._not_serving()
        if refusal is not None:
            state.reject(event.token, refusal)
        elif leadership is not None:
            self._queue_or_answer(leadership, event)

    def _queue_or_answer(self, leadership: LeaderState, event: ReadRequest) -> None:
        """Answer a read by the lease, or queue it."""
        state, lease, token = self._state, leadership.lease, event.token
        may_answer = event.by_lease and leadership.handover is None and not state.time_held_back
        if may_answer and lease.is_valid(state.now_us):
            state.ready.reads_ready.append(ReadReady(token, state.commit))
            if lease.ends_soon(state.now_us):
                leadership.reads.need_round()
        elif len(leadership.reads) >= state.settings.reads_pending_max:
            state.reject(token, RejectReason.OVERLOADED)
        else:
            leadership.reads.add(token, state.commit)
