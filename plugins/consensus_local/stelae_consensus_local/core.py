"""The core of a local tablet: one replica that is the whole consensus group, straight to its log.

It does what ``raft`` does in a group of one, without messages and elections:

1. A start begins a new term: term and vote for itself become durable first. So op ids never repeat, and terms grow.
2. The first entry of a term is the initial config if no config is in the log yet, otherwise an empty entry
   (durability rule 10). The replica serves once this entry is committed. Entries of earlier terms commit with it.
3. An entry is committed when it is durable. No other replica could have another entry at its index.
4. A read needs no confirmation: nothing else can lead. Its index is the commit index at its arrival.
5. After a failed write the replica gives up its leadership, forgets what is not durable, and begins another term when
   the driver gives it time again. A full disk stops that time (``stelae.host.replica``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from stelae.spi.consensus import Accepted, ConsensusCore, Fatal, HardState, ReadReady, Ready, Role, Status
from stelae.spi.consensus_events import (
    AbortChange,
    Applied,
    Campaign,
    ChangeMembers,
    Event,
    Persisted,
    PersistFailed,
    Proposal,
    Propose,
    ReadRequest,
    RecoverAlone,
    Removed,
    StandDown,
    StepDown,
    Tick,
    Transfer,
)
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.log import ENTRY_BYTES_MAX, ENTRY_OVERHEAD_BYTES, Entry, EntryKind
from stelae.spi.members import encode_config
from stelae.spi.rejections import RejectReason
from stelae_consensus_local.effects import LocalEffects
from stelae_consensus_local.local_log import BrokenLocalInvariant, LocalLog

LEAD_AGAIN_AFTER_US = 100_000
"""The pause between a leadership that ended and the next one. A disk that fails at once must not keep the core busy."""

HISTORY_LENGTH_MAX = 64
"""The number of role changes that are remembered for ``Fatal``."""

CORE_KINDS = (EntryKind.NOOP, EntryKind.CONFIG)
"""Kinds of entries that only the core itself appends to the log."""

NO_CHANGES = (
    "the consensus engine 'local' has one member for ever; to add members, stop the node, run "
    "`stelae tablet convert-consensus --to raft`, and start it again"
)


class LocalCore(ConsensusCore):
    """The consensus of one replica with itself. Its only member is ``node_id``."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        hard_state: HardState,
        log: LocalLog,
        applied: int,
        pending_bytes_max: int,
        now_us: int,
    ) -> None:
        self._node_id = node_id
        self._hard_state = hard_state
        self._log = log
        self._applied = applied
        self._pending_bytes_max = pending_bytes_max
        self._now_us = now_us
        self._role = Role.FOLLOWER
        self._lead_at_us: int | None = now_us
        self._vote_ready_id = 0  #: The Ready with the newest term and vote.
        self._first_index = 0  #: The index of the first entry of the newest term; 0: it is not in the log.
        self._all_replicated = 0
        self._ready = LocalEffects()
        self._history: deque[str] = deque(maxlen=HISTORY_LENGTH_MAX)
        self._is_broken = False
        self._handlers = self._event_handlers()
        self._note_committed_config()

    def _event_handlers(self) -> dict[type, Callable[[Any], None]]:
        """Return the handler of each event that concerns a replica without peers. Others are ignored."""
        return {
            Tick: self._on_tick,
            Campaign: self._on_campaign,
            Propose: self._on_propose,
            ReadRequest: self._on_read,
            Persisted: self._on_persisted,
            PersistFailed: self._on_persist_failed,
            Applied: self._on_applied,
            Transfer: self._on_transfer,
            ChangeMembers: self._on_change,
            AbortChange: self._on_abort,
            RecoverAlone: self._on_recovery,
            StandDown: self._on_recovery,
            StepDown: self._on_step_down,
            Removed: self._on_removed,
        }

    # -- the contract ----------------------------------------------------------------------------

    def step(self, events: Sequence[Event]) -> None:
        """Process events, in order. Events of peers have no effect, because this replica has none."""
        try:
            for event in events:
                handler = self._handlers.get(type(event))
                if handler is not None and not self._is_broken:
                    handler(event)
        except BrokenLocalInvariant as broken:
            self._is_broken = True
            self._ready.fatal = Fatal(str(broken), tuple(self._history))

    def take_ready(self) -> Ready | None:
        """Return the effects since the last call, or ``None`` if there are none."""
        return self._ready.take()

    def next_deadline(self) -> int | None:
        """Return when this replica begins its next term, or ``None`` while it leads or is about to."""
        return None if self._is_broken else self._lead_at_us

    def status(self) -> Status:
        """Return a snapshot of the state."""
        log = self._log
        return Status(
            node_id=self._node_id,
            role=self._role,
            term=self._hard_state.term,
            voted_for=self._hard_state.voted_for,
            leader=self._leader,
            last=log.last,
            durable_index=log.durable,
            commit=log.commit,
            applied=self._applied,
            serving=self._is_serving,
            config=log.config,
            committed_config=log.committed_config,
            all_replicated_index=self._all_replicated,
        )

    def validate_state(self) -> None:
        """Check every invariant. Raises ``AssertionError`` if one does not hold."""
        self._log.validate()
        assert self._log.last.term <= self._hard_state.term, "the log has an entry of a later term"
        assert self._all_replicated <= self._log.commit
        assert self._applied <= self._log.commit
        assert (self._role is Role.FOLLOWER) == (self._lead_at_us is not None), "this replica would never lead again"
        if self._role in (Role.LEADER, Role.CANDIDATE):
            assert self._hard_state.voted_for == self._node_id
        if self._role is Role.LEADER:
            assert self._log.last.term == self._hard_state.term

    # -- leadership ------------------------------------------------------------------------------

    @property
    def _leader(self) -> NodeId | None:
        return self._node_id if self._role is Role.LEADER else None

    @property
    def _is_serving(self) -> bool:
        """True if the first entry of the newest term is committed (durability rule 10)."""
        return 0 < self._first_index <= self._log.commit

    def _change_role(self, role: Role, why: str) -> None:
        log = self._log
        self._history.append(
            f"{self._now_us} us: {self._role} -> {role} ({why}), term {self._hard_state.term}, last {log.last}, "
            f"commit {log.commit}"
        )
        self._role = role
        self._lead_at_us = self._now_us + LEAD_AGAIN_AFTER_US if role is Role.FOLLOWER else None

    def _on_tick(self, event: Tick) -> None:
        if event.now_us < self._now_us:
            raise BrokenLocalInvariant(f"time went back from {self._now_us} to {event.now_us}")
        self._now_us = event.now_us
        if self._lead_at_us is not None and event.now_us >= self._lead_at_us:
            self._begin_term()

    def _on_campaign(self, _event: Campaign) -> None:
        if self._role is Role.FOLLOWER:
            self._begin_term()

    def _begin_term(self) -> None:
        """Write the next term and the vote for this replica. It leads once they are durable (durability rule 9)."""
        self._hard_state = HardState(self._hard_state.term + 1, self._node_id)
        self._first_index = 0
        self._ready.hard_state = self._hard_state
        self._vote_ready_id = self._ready.next_id
        self._change_role(Role.CANDIDATE, "begins a term")

    def _lead(self) -> None:
        """Append the first entry of the term."""
        log = self._log
        self._change_role(Role.LEADER, "its term is durable")
        op_id = OpId(self._hard_state.term, log.last.index + 1)
        self._first_index = op_id.index
        if log.config.op_id == ZERO:
            first = Entry(op_id, EntryKind.CONFIG, 0, encode_config(log.config))
        else:
            first = Entry(op_id, EntryKind.NOOP, 0, b"")
        self._append([first])

    def _on_step_down(self, _event: StepDown) -> None:
        if self._role is Role.LEADER:
            self._change_role(Role.FOLLOWER, "was asked to step down")

    def _on_removed(self, event: Removed) -> None:
        """Stop for good: a newer config exists elsewhere, so these files are an old copy of a tablet that went on."""
        if event.config_id > self._log.config.op_id and self._role is not Role.NON_PARTICIPANT:
            self._change_role(Role.NON_PARTICIPANT, f"removed by config {event.config_id}")

    # -- the log ---------------------------------------------------------------------------------

    def _append(self, entries: Sequence[Entry]) -> None:
        self._log.append(self._ready.next_id, entries)
        self._ready.entries.extend(entries)

    def _on_persisted(self, event: Persisted) -> None:
        if event.ready_id >= self._ready.next_id:
            raise BrokenLocalInvariant(f"Ready {event.ready_id} is durable but was never handed out")
        self._log.persisted(event.ready_id)
        if self._role is Role.CANDIDATE and event.ready_id >= self._vote_ready_id:
            self._lead()
        elif self._role is Role.LEADER:
            self._commit()

    def _commit(self) -> None:
        """Commit what is durable, once this includes an entry of the current term."""
        log = self._log
        if log.durable <= log.commit or log.durable < self._first_index:
            return
        log.commit_durable()
        self._ready.commit = self._all_replicated = log.commit
        self._note_committed_config()

    def _note_committed_config(self) -> None:
        if self._log.commit_configs():
            self._ready.committed_config = self._log.committed_config

    def _on_persist_failed(self, event: PersistFailed) -> None:
        """Forget the entries that are not durable. Every proposal of them may be repeated."""
        self._ready.drop_entries()
        self._log.failed(event.durable_index)
        if self._first_index > self._log.last.index:
            self._first_index = 0
        if self._role is not Role.NON_PARTICIPANT:
            self._change_role(Role.FOLLOWER, "a write failed")

    def _on_applied(self, event: Applied) -> None:
        if event.index > self._log.commit:
            raise BrokenLocalInvariant(f"applied {event.index}, only {self._log.commit} committed")
        self._applied = max(self._applied, event.index)

    # -- requests --------------------------------------------------------------------------------

    def _not_serving(self) -> RejectReason | None:
        """Return why this replica takes no requests, or ``None``."""
        if self._role is not Role.LEADER:
            return RejectReason.NOT_LEADER
        return None if self._is_serving else RejectReason.CONFIGURING

    def _reject(self, token: int, reason: RejectReason, detail: str = "") -> None:
        self._ready.reject(token, reason, self._leader, detail)

    def _on_propose(self, event: Propose) -> None:
        """Append proposals, in order. Each one is accepted or rejected by its token.

        Those behind one that finds no room are rejected as well: a client's operations may be in both, and one that is
        sent again must not get behind a later one."""
        refusal = self._not_serving()
        term, index = self._hard_state.term, self._log.last.index
        pending, entries = self._log.pending_bytes, []
        for proposal in event.proposals:
            why = refusal or self._proposal_refusal(proposal, pending)
            if why is not None:
                refusal = RejectReason.OVERLOADED if why is RejectReason.OVERLOADED else refusal
                self._reject(proposal.token, why)
                continue
            index += 1
            entries.append(Entry(OpId(term, index), proposal.kind, 0, proposal.body))
            self._ready.accepted.append(Accepted(proposal.token, OpId(term, index)))
            pending += entries[-1].size_bytes
        if entries:
            self._append(entries)

    def _proposal_refusal(self, proposal: Proposal, pending_bytes: int) -> RejectReason | None:
        if len(proposal.body) > ENTRY_BYTES_MAX:
            return RejectReason.TOO_LARGE
        if proposal.kind in CORE_KINDS:
            return RejectReason.UNSUPPORTED
        size = len(proposal.body) + ENTRY_OVERHEAD_BYTES
        # A proposal above the limit is accepted if nothing is pending. Otherwise it could never be.
        if pending_bytes and pending_bytes + size > self._pending_bytes_max:
            return RejectReason.OVERLOADED
        return None

    def _on_read(self, event: ReadRequest) -> None:
        refusal = self._not_serving()
        if refusal is not None:
            self._reject(event.token, refusal)
        else:
            self._ready.reads_ready.append(ReadReady(event.token, self._log.commit))

    def _on_transfer(self, event: Transfer) -> None:
        """Reject the transfer, except one to this leader itself, which is done at once."""
        if self._role is not Role.LEADER:
            self._reject(event.token, RejectReason.NOT_LEADER)
        elif event.to == self._node_id:
            self._ready.handed_over.append(event.token)
        else:
            self._reject(event.token, RejectReason.NO_SUCCESSOR if event.to is None else RejectReason.NOT_A_VOTER)

    def _on_change(self, event: ChangeMembers) -> None:
        refusal = self._not_serving()
        if refusal is not None:
            self._reject(event.token, refusal)
        else:
            self._reject(event.token, RejectReason.UNSUPPORTED, NO_CHANGES)

    def _on_recovery(self, event: RecoverAlone | StandDown) -> None:
        detail = "a tablet with one member never loses its majority; nothing to recover"
        self._reject(event.token, RejectReason.UNSUPPORTED, detail)

    def _on_abort(self, event: AbortChange) -> None:
        if self._role is not Role.LEADER:
            self._reject(event.token, RejectReason.NOT_LEADER)
        else:
            self._reject(event.token, RejectReason.NO_CHANGE, f"no change is in progress: {NO_CHANGES}")
