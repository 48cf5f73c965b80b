"""One replica of a tablet: it drives a consensus core and the parts that carry out the core's effects.

The replica collects events during a turn of the event loop, steps its core once with all of them, and passes each Ready
to the executor. The rules of consensus are in the core, and the rules of durability in the executor. This module has
the replica's state, and decides which input is refused in which state.

States: ``CONFIGURING`` until an entry of the current term is known to be committed, then ``RUNNING`` (``durability.md``
rule 10). ``FAILED`` when its log or metadata can no longer be trusted (rule 7), or an invariant is broken. A full disk
only *suspends* the replica: input is refused until the log has been repaired in fresh space (W8)."""

import logging
from collections.abc import Callable

from stelae.host.apply import Applier
from stelae.host.copy_requests import CopyRequests
from stelae.host.core_clock import CoreClock
from stelae.host.executor import ReadyExecutor
from stelae.host.flush_and_collect import Flusher
from stelae.host.leadership_transfers import PendingTransfers, TransferDone
from stelae.host.log_repair import LogRepair
from stelae.host.member_changes import AbortDone, MembersChanged, PendingMemberChanges
from stelae.host.peer_codec import PeerMessage
from stelae.host.ports import Timer
from stelae.host.read_faults import ReadFaults
from stelae.host.read_index_waits import ReadIndexWaits
from stelae.host.refused_messages import RefusedMessages
from stelae.host.rejection_errors import rejection_error
from stelae.host.replica_ports import ReplicaPorts
from stelae.host.replica_state import STATUS_CHANGED, ReplicaState, member_difference, visible_state
from stelae.host.rows_for_witnesses import RowsForWitnesses
from stelae.host.writes import WritePath
from stelae.spi.consensus import Beats, ConsensusCore, CopyRequest, Fatal, ReadReady, Role
from stelae.spi.consensus_events import Applied, Event, Received, StepDown, Tick
from stelae.spi.errors import Full, NotLeader, Overloaded, StelaeError, Unavailable
from stelae.spi.ids import LogId, NodeId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import MemberChange, TabletConfig
from stelae.spi.rejections import Rejection
from stelae.spi.schema import Schema
from stelae.spi.wal import Failed
from stelae.spi.write import WriteReply, WriteRequest

log = logging.getLogger(__name__)

REPAIR_INTERVAL_US = 500_000  #: The pause between two attempts of a replica whose disk is full.


class Replica:
    """Drives one core, on the event loop. ``assembly.assemble`` builds it.

    ``vote_kinds`` are the message kinds before which the heartbeats received so far must be delivered to the core."""

    def __init__(self, *, log: LogId, core: ConsensusCore, vote_kinds: frozenset[str], ports: ReplicaPorts) -> None:
        self.log = log
        self.core = core
        self.status = core.status()
        self.failure = ""
        self.on_status: Callable[[], None] | None = None  #: Called when role, term, leader or readiness changed.
        self._vote_kinds = vote_kinds
        self._ports = ports
        # The events of the next turn, in this order: delayed ones, heartbeats, the tick, the others.
        self._delayed: list[Event] = []
        self._heartbeats: list[Event] = []
        self._events: list[Event] = []
        self._turn_due = False
        self._to_apply = 0  #: The commit index up to which a follower applies when its executor is idle.
        self._stopping = False
        self._failing = ""  #: Why the replica will fail once it has handed over its leadership.
        self._refused = RefusedMessages(core, ports.metrics)
        self.read_faults = ReadFaults(self.fail_after_handover, self.fail)  #: Gets the results of reads and store work.
        self.suspended = False  #: True while the disk is full: input is refused.
        self._log_repair = LogRepair(
            log=log, writer=ports.writer, later=self.retry_later, on_repaired=self._repaired, on_failed=self.fail
        )
        self._timer: Timer | None = None
        self._timer_us = 0
        self._clock = CoreClock()

    def connect(
        self,
        executor: ReadyExecutor,
        applier: Applier,
        writes: WritePath,
        reads: ReadIndexWaits,
        transfers: PendingTransfers,
        member_changes: PendingMemberChanges,
        flusher: Flusher,
    ) -> None:
        """Set the parts that call back into the replica. Called once, before ``start``."""
        self.executor = executor
        self.applier = applier
        self.writes = writes
        self.reads = reads
        self.transfers = transfers
        self.member_changes = member_changes
        self.flusher = flusher
        self._retention = flusher.retention
        start, cancel = self._ports.network.start_copy, self._ports.network.cancel_copy
        self._copy_requests = CopyRequests(self._ports.network.create_replica, start, self._ports.metrics)
        self._rows_for_witnesses = RowsForWitnesses(start, cancel)

    def start(self) -> None:
        """Start to take part in the consensus group."""
        log.info("replica starts tablet=%s term=%d last=%s", self.tablet_id, self.status.term, self.status.last)
        self._ports.members.config_changed(self.tablet_id, self.status.config)
        self._schedule_turn()

    def stop(self) -> None:
        """Stop. Waiting callers get an error, and timers are cancelled. Log and store stay open."""
        if self._stopping:
            return
        if not self.failure:
            self.core.step([StepDown()])
        self._stopping = True
        self._close_down(Unavailable("the replica is stopping"))

    @property
    def tablet_id(self) -> TabletId:
        """The id of the tablet."""
        return self.log.tablet_id

    @property
    def log_only(self) -> bool:
        """True if this replica has no rows, as that of a witness."""
        return self.flusher.superblock.log_only

    @property
    def state(self) -> ReplicaState:
        """The run state of the replica."""
        if self.failure or self._failing:
            return ReplicaState.FAILED
        if self._stopping:
            return ReplicaState.STOPPING
        return ReplicaState.RUNNING if self.status.serving else ReplicaState.CONFIGURING

    # -- input -----------------------------------------------------------------------------------

    def receive(self, sender: NodeId, received: PeerMessage) -> None:
        """Handle a consensus message. A message with entries is dropped while they cannot be appended."""
        if self._closed:
            return
        if received.entries and not (self._can_append and (not self.flusher.full or self.flusher.waits_for_log)):
            self._ports.metrics.count("consensus_messages_refused")
            return
        if received.kind in self._vote_kinds:
            self._collect_leader_heartbeat()
        self.deliver(Received(sender, received.message, received.entries))

    def write(self, request: WriteRequest, done: Callable[[WriteReply | StelaeError], None]) -> None:
        """Replicate the operations of a request. ``done`` is called once, with a reply or an error.

        A reply means that every operation in it is decided: committed by a majority and applied, or refused for good.
        An error means that the caller should retry with the same client id and sequence numbers."""
        if (refusal := self._refusal()) is not None:
            done(refusal)
            return
        self.writes.add(request, done)
        self._schedule_turn()

    def change_schema(self, schema: Schema, done: Callable[[WriteReply | StelaeError], None]) -> None:
        """Replicate the next schema of the tablet. ``done`` is called as by ``write``, with one answer.

        The version is the fence: it must follow the version that is in force when the schema is applied. Repeating the
        call is harmless."""
        if (refusal := self._refusal()) is not None:
            done(refusal)
            return
        self.writes.change_schema(schema, done)
        self._schedule_turn()

    def read_index(self, done: Callable[[int | StelaeError], None], *, by_lease: bool = True) -> None:
        """Confirm leadership with a majority, and wait until everything committed before the call is applied.

        ``done`` gets the hybrid timestamp of the last applied entry, or an error. A scan at this timestamp is
        linearizable (C14). Without ``by_lease``, a lease does not replace the messages to the majority."""
        if (refusal := self._refusal(needs_room=False)) is not None:
            done(refusal)
            return
        self.deliver(self.reads.request(done, by_lease=by_lease))

    def transfer(self, to: NodeId | None, done: TransferDone) -> None:
        """Hand over leadership to a voter, or with ``None`` to the most up-to-date one.

        ``done`` is called once, with an error if the transfer failed. Meanwhile, for at most an election timeout,
        writes fail with ``Unavailable`` (C8)."""
        if (refusal := self._refusal(needs_room=False)) is not None:
            done(refusal)
            return
        self._hand_over(to, done)

    def _hand_over(self, to: NodeId | None, done: TransferDone) -> None:
        self.collect_heartbeats()  # The core hands over to voters that it heard lately only.
        self.deliver(self.transfers.request(to, done))

    def change_members(
        self, change: MemberChange, done: MembersChanged, *, committed_config_id: OpId | None = None
    ) -> None:
        """Add, remove, promote or demote one member. Source: "Raft config change", *Membership change*.

        ``done`` is called once: with the config once it is committed, or with an error. ``MemberChangeRefused`` says
        why nothing was done; after another ``RetryableError`` than ``NotLeader`` the outcome is unknown.
        The change can be repeated: with ``committed_config_id``, the op id of the committed config that it is meant
        for, it takes effect once at most. Removing the leader hands over its leadership, and fails with ``NotLeader``,
        which names the successor."""
        if (refusal := self._refusal(needs_room=False)) is not None:
            done(refusal)
            return
        self.collect_heartbeats()  # The core refuses changes whose majority was not heard lately.
        self.deliver(self.member_changes.request(change, committed_config_id, done))

    def abort_change(self, done: AbortDone) -> None:
        """Cancel a change of config that is not appended yet. ``done`` is called once, with an error if it cannot."""
        if (refusal := self._refusal(needs_room=False)) is not None:
            done(refusal)
            return
        self.deliver(self.member_changes.request_abort(done))

    def deliver(self, event: Event) -> None:
        """Queue an event for the core's next step. About half of all events can wait, and start no turn for it."""
        if self._closed:
            return
        if not self._turn_due and not self._delayed and self.core.can_wait(event):
            self._delayed.append(event)
            return
        self._events.append(event)
        self._schedule_turn()

    # -- the turn --------------------------------------------------------------------------------

    def _schedule_turn(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._ports.turns.defer(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        if self._closed:
            return
        now_us = self._ports.turns.now_us()
        if self._timer is None or now_us >= self._timer_us:
            # Heartbeats before the tick: otherwise a busy node would campaign although its leader is alive.
            self.collect_heartbeats()
        core_us = self._clock.tick(now_us, self.core.next_deadline() if self.suspended else None)
        events: list[Event] = [*self._delayed, *self._heartbeats, Tick(core_us, self.suspended), *self._events]
        self._delayed, self._heartbeats, self._events = [], [], []
        try:
            if not self._step(events):
                return
        except Exception as error:
            # After an interrupted step the core's state is not reliable.
            log.exception("a turn of a replica raised tablet=%s", self.tablet_id)
            self.fail(f"invariant broken: a turn raised {type(error).__name__}: {error}; restart the node")
            return
        self._note_status()
        self._arm_timer()

    def _step(self, events: list[Event]) -> bool:
        """Step the core and carry out its Readies. Return False if that closed the replica."""
        proposals = self.writes.take_proposals()
        self.core.step(events if proposals is None else [*events, proposals])
        self._refused.count()
        while (ready := self.core.take_ready()) is not None:
            self.executor.execute(ready)
            if self._closed:
                return False
        return True

    def _note_status(self) -> None:
        before, after = self.status, self.core.status()
        self.status = after
        self._rows_for_witnesses.consider(after, self.flusher.superblock, self.flusher.log_base, self._clock.now_us)
        if after.all_replicated_index != before.all_replicated_index:
            self._retention.all_replicated(after.all_replicated_index)
        if after.config != before.config:
            self._config_changed(before.config, after.config)
        old, new = visible_state(before), visible_state(after)
        if old == new:
            return
        log.info(STATUS_CHANGED, self.tablet_id, *(value for pair in zip(old, new, strict=True) for value in pair))
        self._ports.observer.status_changed(self.tablet_id, before, after)
        if self.on_status is not None:
            self.on_status()

    def _config_changed(self, before: TabletConfig, after: TabletConfig) -> None:
        log.info("config active tablet=%s op_id=%s %s", self.tablet_id, after.op_id, member_difference(before, after))
        self._ports.members.config_changed(self.tablet_id, after)
        self._copy_requests.config_changed(after)
        self._rows_for_witnesses.config_changed(after)

    def _arm_timer(self) -> None:
        """Set the timer to the core's deadline. A timer that fires earlier is kept."""
        deadline = None if self.suspended else self.core.next_deadline()
        if deadline is None or (self._timer is not None and self._timer_us <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_us = deadline
        self._timer = self._ports.turns.call_at(deadline, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._schedule_turn()

    def collect_heartbeats(self) -> None:
        """Deliver the heartbeats received so far with the events of the next turn."""
        if self.status.role is Role.LEADER:
            self._heartbeats.extend(self._ports.heartbeats.peers_alive(self.tablet_id, self.status.term))
        else:
            self._collect_leader_heartbeat()

    def _collect_leader_heartbeat(self) -> None:
        members = () if self.status.leader is not None else [m.node_id for m in self.status.config.members]
        heard = self._ports.heartbeats.leader_alive(self.tablet_id, self.status.leader, members)
        self._heartbeats += [] if heard is None else [heard]

    # -- refusals --------------------------------------------------------------------------------

    @property
    def _closed(self) -> bool:
        return self._stopping or bool(self.failure)

    @property
    def accepts_input(self) -> bool:
        """Whether the replica takes new writes now."""
        return self._can_append and not self.flusher.full

    @property
    def _can_append(self) -> bool:
        return self._ports.writer.has_room() and not self.suspended and not self.executor.stalled

    def _refusal(self, *, needs_room: bool = True) -> StelaeError | None:
        if reason := self.failure or self._failing:
            return Unavailable(f"the replica has failed: {reason}")
        if self._stopping:
            return Unavailable("the replica is stopping")
        status = self.status
        if status.role is not Role.LEADER:
            return NotLeader(status.leader)
        if status.caretaker:
            return Unavailable("a witness leads the tablet until a voter has all of its log; try again")
        if not status.serving:
            return Unavailable("the tablet is CONFIGURING: no entry of this term is committed yet")
        if needs_room and not self.accepts_input:
            full = "the store's memory is full; writes resume when rows are flushed"
            why = full if self.flusher.full else "the log queue is full"
            return Overloaded("the disk is full; writes resume when there is space" if self.suspended else why)
        return None

    # -- ReadySink: for the meaning of each call see `ports` -------------------------------------

    def entries_changed(self, entries: tuple[Entry, ...], replace_from: int | None) -> None:
        if replace_from is not None:
            self._retention.cut(replace_from)
        self._retention.appended(entries)
        for entry in entries:
            if entry.kind is EntryKind.CONFIG:
                self._retention.config_appended(entry.op_id.index)
        if replace_from is not None:
            self.writes.replaced(replace_from, NotLeader(self.core.status().leader, "replaced"))
        self.applier.advance()

    def entries_cut(self, from_index: int) -> None:
        self._retention.cut(from_index)

    def committed(self, index: int) -> None:
        # A leader applies at once, because its callers wait. A follower first acknowledges the entries that arrived
        # with this commit index. It applies up to the previous commit index now, and the rest in ``_apply_rest``.
        previous, self._to_apply = self._to_apply, index
        self.applier.commit_to(index if self.status.role is Role.LEADER else previous)

    def drained(self) -> None:
        if self.flusher.full and not self._closed:
            self.flusher.consider()
        self._ports.turns.defer_last(self._apply_rest)

    def _apply_rest(self) -> None:
        if not self._closed:
            self.applier.commit_to(self._to_apply)

    def accepted(self, token: int, op_id: OpId) -> None:
        self.writes.accepted(token, op_id)

    def rejected(self, rejection: Rejection) -> None:
        if self._closed:
            return
        asked = self.transfers.asked(rejection.token) or self.member_changes.asked(rejection.token)
        error = rejection_error(rejection, self.tablet_id, asked)
        waits = (self.reads.failed, self.transfers.ended, self.member_changes.failed)
        if not any(failed(rejection.token, error) for failed in waits):
            self.writes.rejected(rejection.token, error)

    def read_ready(self, ready: ReadReady) -> None:
        if self._closed:
            return
        self.reads.confirmed(ready.token, ready.index, self.applier.applied.index)

    def handed_over(self, token: int) -> None:
        self.transfers.ended(token)

    def members_changed(self, token: int, config: TabletConfig) -> None:
        self.member_changes.committed(token, config)

    def change_aborted(self, token: int) -> None:
        self.member_changes.aborted(token)

    def beats_changed(self, beats: Beats) -> None:
        # A replica that failed while this Ready was carried out must not send heartbeats any more.
        if self._closed:
            return
        self._ports.heartbeats.set_beats(self.tablet_id, beats)

    def stood_down(self, token: int) -> None:
        self.member_changes.aborted(token)

    def copy_requested(self, request: CopyRequest) -> None:
        self._copy_requests.handle(request, self.flusher.superblock, self.status, self.flusher.log_base)

    def config_durable(self, config: TabletConfig) -> None:
        self._retention.config_durable(config.op_id.index)
        log.info("config durable tablet=%s op_id=%s", self.tablet_id, config.op_id)

    def entries_applied(self, applied: OpId) -> None:
        self.reads.applied(applied.index)
        self._events.append(Applied(applied.index))  # Nothing waits for this event, so it starts no turn.
        self.flusher.consider()

    def log_failed(self, failed: Failed) -> None:
        self.writes.replaced(failed.durable.index + 1, Unavailable(str(failed.error)))
        if not isinstance(failed.error, Full):
            self.fail(f"the log cannot be trusted beyond {failed.durable}: {failed.error}")
        elif not self.suspended:
            self.suspended = True
            log.warning("disk full tablet=%s durable=%s", self.tablet_id, failed.durable)
            self._log_repair.begin()

    def metadata_failed(self, error: StelaeError, retry: Callable[[], None]) -> None:
        if isinstance(error, Full):
            self.retry_later(retry)
        else:
            self.fail(f"consensus metadata cannot be saved: {error}")

    def fatal(self, effect: Fatal) -> None:
        log.error("invariant broken tablet=%s: %s", self.tablet_id, effect.reason)
        for line in effect.history:
            log.error("  %s", line)
        self.fail(f"invariant broken: {effect.reason}")

    # -- failure and repair ----------------------------------------------------------------------

    def fail_after_handover(self, reason: str) -> None:
        """Fail for a reason that does not concern the log, such as damage in the store. Clients are refused at once.

        A leader first hands over its leadership, because its log is sound. This takes an election timeout at most."""
        if self._closed or self._failing:
            return
        self._failing = reason
        if self.status.role is not Role.LEADER:
            self.fail(reason)
            return
        log.error("replica hands over before it fails tablet=%s reason=%s", self.tablet_id, reason)
        self._hand_over(None, lambda _error: self._ports.turns.defer(lambda: self.fail(reason)))

    def fail(self, reason: str) -> None:
        """Stop this replica for good. The node and its other tablets continue."""
        if self.failure:
            return
        before = self.state.value if not self._failing else ReplicaState.RUNNING.value
        self.failure = reason
        log.error("replica failed tablet=%s reason=%s", self.tablet_id, reason)
        self._close_down(Unavailable(f"the replica has failed: {reason}"))
        self._ports.observer.replica_failed(self.tablet_id, before, reason)

    def _close_down(self, error: StelaeError) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._events = []
        self._ports.heartbeats.set_beats(self.tablet_id, Beats(self.status.term, ()))
        for waiting in (self.writes, self.reads, self.transfers, self.member_changes):
            waiting.fail_all(error)

    def retry_later(self, call: Callable[[], None]) -> None:
        """Call ``call`` after ``REPAIR_INTERVAL_US``, unless the replica is closed by then."""

        def run() -> None:
            if not self._closed:
                call()

        self._ports.turns.call_at(self._ports.turns.now_us() + REPAIR_INTERVAL_US, run)

    def _repaired(self, durable: OpId) -> None:
        self.suspended = False
        log.info("disk has space again tablet=%s durable=%s", self.tablet_id, durable)
        self._schedule_turn()
