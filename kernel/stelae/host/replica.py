"""One replica of a tablet: its core, and everything that turns the core's effects into facts.

The replica collects events during a turn of the loop, steps its core once with all of them, and
gives each Ready to the executor. It holds no rule of consensus and no rule of durability: those
are the core's and the executor's. Its own are the replica's state and what it refuses in it.

States: ``CONFIGURING`` until an entry of the current term is known to be committed, then
``RUNNING`` (``durability.md`` rule 10); ``FAILED`` when its log or metadata can no longer be
trusted (rule 7), or an invariant broke. A full disk only *suspends* it: input is refused until the
log has been repaired in fresh space (W8)."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from stelae.host.apply import Applier
from stelae.host.executor import ExecutorPorts, ReadyExecutor
from stelae.host.flush_and_collect import Flusher
from stelae.host.heartbeats import HeartbeatService
from stelae.host.leadership_transfers import LeadershipTransfers, TransferDone
from stelae.host.peer_codec import PeerMessage
from stelae.host.ports import BatcherFactory, BlockingPool, Timer, Turns
from stelae.host.read_faults import ReadFaults
from stelae.host.read_index_waits import ReadIndexWaits
from stelae.host.rejection_errors import rejection_error
from stelae.host.writes import WritePath
from stelae.spi.consensus import (
    Applied,
    Beats,
    ConsensusCore,
    CopyRequest,
    Event,
    Fatal,
    ReadReady,
    Received,
    Rejection,
    Role,
    Status,
    StepDown,
    TabletConfig,
    Tick,
)
from stelae.spi.errors import Full, NotLeader, Overloaded, StelaeError, Unavailable
from stelae.spi.ids import LogId, NodeId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.schema import Schema
from stelae.spi.services import Metrics
from stelae.spi.wal import Failed
from stelae.spi.write import WriteReply, WriteRequest

log = logging.getLogger(__name__)

REPAIR_INTERVAL_US = 500_000  #: How often a replica whose disk was full tries again.


class ReplicaState(StrEnum):
    """What a replica is doing (seed "consensus", *Peers in the config*)."""

    BOOTSTRAPPING = "BOOTSTRAPPING"
    CONFIGURING = "CONFIGURING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    FAILED = "FAILED"


class ReplicaObserver(Protocol):
    """Told of transitions; must not raise and must not block."""

    def status_changed(self, tablet_id: TabletId, before: Status, after: Status) -> None:
        """Role, term, leader or readiness changed."""

    def replica_failed(self, tablet_id: TabletId, before: str, reason: str) -> None:
        """The replica is FAILED and serves nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPorts(ExecutorPorts):
    """What every replica of a node works with; see ``ports``."""

    turns: Turns
    batcher: BatcherFactory
    heartbeats: HeartbeatService
    pool: BlockingPool
    metadata_pool: BlockingPool
    metrics: Metrics
    observer: ReplicaObserver


class Replica:
    """Drives one core, on the event loop; built by ``assembly.assemble``.

    Before a message of ``vote_kinds`` is delivered, the heartbeats heard since must be."""

    def __init__(self, *, log: LogId, core: ConsensusCore, vote_kinds: frozenset[str], ports: ReplicaPorts) -> None:
        self.log = log
        self.core = core
        self.status = core.status()
        self.failure = ""
        self.on_status: Callable[[], None] | None = None  #: Called when role, term, leader or readiness changed.
        self._vote_kinds = vote_kinds
        self._ports = ports
        self._heard: list[Event] = []
        self._events: list[Event] = []
        self._held: list[Event] = []
        self._turn_due = False
        self._to_apply = 0
        self._stopping = False
        self._condemned = ""
        self.read_faults = ReadFaults(self.condemn)  #: Is told how reads of its log and store ended.
        self.suspended = False  #: While the disk is full; input is refused.
        self._timer: Timer | None = None
        self._timer_us = 0
        self._core_us = 0  #: The time of the core's last ``Tick``.

    def wire(
        self,
        executor: ReadyExecutor,
        applier: Applier,
        writes: WritePath,
        reads: ReadIndexWaits,
        transfers: LeadershipTransfers,
        flusher: Flusher,
    ) -> None:
        """Connect the parts that call back into the replica; once, before ``start``."""
        self.executor = executor
        self.applier = applier
        self.writes = writes
        self.reads = reads
        self.transfers = transfers
        self.flusher = flusher
        self._retention = flusher.retention

    def start(self) -> None:
        """Begin to take part."""
        log.info("replica starts tablet=%s term=%d last=%s", self.tablet_id, self.status.term, self.status.last)
        self._schedule_turn()

    def stop(self) -> None:
        """Stop taking part: pending callers get an error, timers end. Log and store stay open."""
        if self._stopping:
            return
        if not self.failure:
            self.core.step([StepDown()])
        self._stopping = True
        self._close_down(Unavailable("the replica is stopping"))

    @property
    def tablet_id(self) -> TabletId:
        """The tablet."""
        return self.log.tablet_id

    @property
    def state(self) -> ReplicaState:
        """What the replica is doing."""
        if self.failure or self._condemned:
            return ReplicaState.FAILED
        if self._stopping:
            return ReplicaState.STOPPING
        return ReplicaState.RUNNING if self.status.serving else ReplicaState.CONFIGURING

    # -- input -----------------------------------------------------------------------------------

    def receive(self, sender: NodeId, received: PeerMessage) -> None:
        """Take a consensus message. Entries are refused while they could not be kept."""
        if self._closed:
            return
        if received.entries and not self._takes_input:
            self._ports.metrics.count("consensus_messages_refused")
            return
        if received.kind in self._vote_kinds:
            self._hear_leader()
        self.deliver(Received(sender, received.message, received.entries))

    def write(self, request: WriteRequest, done: Callable[[WriteReply | StelaeError], None]) -> None:
        """Replicate the operations of a request; ``done`` once, with a reply or an error.

        A reply means that every operation in it is decided: committed by a majority and applied,
        or refused for good. An error means that the caller should retry under the same identity."""
        if (refusal := self._refusal()) is not None:
            done(refusal)
            return
        self.writes.add(request, done)
        self._schedule_turn()

    def change_schema(self, schema: Schema, done: Callable[[WriteReply | StelaeError], None]) -> None:
        """Replicate the next schema of the tablet; ``done`` as for ``write``, with one answer. Its version is the
        fence: it must follow the one in force when it is applied. Repeating it is harmless."""
        if (refusal := self._refusal()) is not None:
            done(refusal)
            return
        self.writes.change_schema(schema, done)
        self._schedule_turn()

    def read_index(self, done: Callable[[int | StelaeError], None]) -> None:
        """Confirm leadership and wait until everything committed before the call is applied. ``done`` gets the hybrid
        timestamp of the last applied entry, at which a scan is linearizable (C14), or an error."""
        if (refusal := self._refusal(needs_room=False)) is not None:
            done(refusal)
            return
        self.deliver(self.reads.request(done))

    def transfer(self, to: NodeId | None, done: TransferDone) -> None:
        """Hand leadership over to a voter, or (``None``) to the best one; ``done`` with an error if it could not be.
        Writes get ``Unavailable`` meanwhile, for an election timeout at most (C8)."""
        if (refusal := self._refusal(needs_room=False)) is not None:
            done(refusal)
            return
        self.deliver(self.transfers.request(to, done))

    def deliver(self, event: Event) -> None:
        """Queue an event for the core's next step; alone it brings no turn if nobody waits for it, as half of them."""
        if self._closed:
            return
        if not self._turn_due and not self._held and self.core.can_wait(event):
            self._held.append(event)
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
            self._hear()  # What was heard counts before the clock does: else a busy node would campaign.
        self._core_us = self._time_for_core(now_us)
        events: list[Event] = [*self._held, *self._heard, Tick(self._core_us), *self._events]
        self._held, self._heard, self._events = [], [], []
        try:
            if not self._step(events):
                return
        except Exception as error:
            # A step that ended half way leaves a core that nothing may be concluded from.
            log.exception("a turn of a replica raised tablet=%s", self.tablet_id)
            self.fail(f"invariant broken: a turn raised {type(error).__name__}: {error}; restart the node")
            return
        self._note_status()
        self._arm_timer()

    def _step(self, events: list[Event]) -> bool:
        """Step the core and carry out what follows from it; false if that closed the replica."""
        proposals = self.writes.take_proposals()
        self.core.step(events if proposals is None else [*events, proposals])
        while (ready := self.core.take_ready()) is not None:
            self.executor.execute(ready)
            if self._closed:
                return False
        return True

    def _time_for_core(self, now_us: int) -> int:
        """Return the time of the next ``Tick``. A suspended replica must not campaign, since it could append nothing as
        leader: its core's time stops before the deadline. The deadline may be older than the last ``Tick`` (a leader's
        is, when a silent peer was to be asked again long ago); time never goes back for a core."""
        deadline = self.core.next_deadline() if self.suspended else None
        return now_us if deadline is None else max(self._core_us, min(now_us, deadline - 1))

    def _note_status(self) -> None:
        before, after = self.status, self.core.status()
        self.status = after
        if after.all_replicated_index != before.all_replicated_index:
            self._retention.all_replicated(after.all_replicated_index)
        was, now = _headline(before), _headline(after)
        if was == now:
            return
        pairs = [value for pair in zip(was, now, strict=True) for value in pair]
        log.info("replica tablet=%s role=%s->%s term=%s->%s leader=%s->%s serving=%s->%s", self.tablet_id, *pairs)
        self._ports.observer.status_changed(self.tablet_id, before, after)
        if self.on_status is not None:
            self.on_status()

    def _arm_timer(self) -> None:
        """Sleep until the core's deadline; a timer that is early enough already is kept."""
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

    def _hear(self) -> None:
        if self.status.role is Role.LEADER:
            self._heard.extend(self._ports.heartbeats.peers_alive(self.tablet_id, self.status.term))
        else:
            self._hear_leader()

    def _hear_leader(self) -> None:
        members = () if self.status.leader is not None else [m.node_id for m in self.status.config.members]
        heard = self._ports.heartbeats.leader_alive(self.tablet_id, self.status.leader, members)
        if heard is not None:
            self._heard.append(heard)

    # -- refusals --------------------------------------------------------------------------------

    @property
    def _closed(self) -> bool:
        return self._stopping or bool(self.failure)

    @property
    def _takes_input(self) -> bool:
        room = self._ports.writer.has_room() and not self.flusher.full
        return room and not self.suspended and not self.executor.stalled

    def _refusal(self, *, needs_room: bool = True) -> StelaeError | None:
        if reason := self.failure or self._condemned:
            return Unavailable(f"the replica has failed: {reason}")
        if self._stopping:
            return Unavailable("the replica is stopping")
        status = self.status
        if status.role is not Role.LEADER:
            return NotLeader(status.leader)
        if not status.serving:
            return Unavailable("the tablet is CONFIGURING: no entry of this term is committed yet")
        if needs_room and not self._takes_input:
            if self.suspended:
                return Overloaded("the disk is full; writes resume when there is space")
            if self.flusher.full:
                return Overloaded("the store's memory is full; writes resume when rows are flushed")
            return Overloaded("the log queue is full")
        return None

    # -- ReadySink: what each call means stands in `ports` ---------------------------------------

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
        # A leader's callers wait for it; a follower applies behind its acknowledgement of what came along.
        late, self._to_apply = self._to_apply, index
        self.applier.commit_to(index if self.status.role is Role.LEADER else late)

    def drained(self) -> None:
        if self.flusher.full and not self._closed:
            self.flusher.consider()
        self._ports.turns.defer_last(self._catch_up)

    def _catch_up(self) -> None:
        if not self._closed:
            self.applier.commit_to(self._to_apply)

    def accepted(self, token: int, op_id: OpId) -> None:
        self.writes.accepted(token, op_id)

    def rejected(self, rejection: Rejection) -> None:
        if self._closed:
            return
        error = rejection_error(rejection)
        if not (self.reads.failed(rejection.token, error) or self.transfers.ended(rejection.token, error)):
            self.writes.rejected(rejection.token, error)

    def read_ready(self, ready: ReadReady) -> None:
        if self._closed:
            return
        self.reads.confirmed(ready.token, ready.index, self.applier.applied.index)

    def handed_over(self, token: int) -> None:
        self.transfers.ended(token)

    def beats_changed(self, beats: Beats) -> None:
        # One that failed while this Ready was carried out must not be kept alive by its node.
        if self._closed:
            return
        self._ports.heartbeats.set_beats(self.tablet_id, beats)

    def copy_requested(self, request: CopyRequest) -> None:
        self._ports.metrics.count("copies_needed")
        what = (self.tablet_id, request.peer, request.first_index)
        log.warning("replica needs a copy tablet=%s peer=%s first_index=%d", *what)

    def config_durable(self, config: TabletConfig) -> None:
        self._retention.config_durable(config.op_id.index)
        log.info("config durable tablet=%s op_id=%s", self.tablet_id, config.op_id)

    def entries_applied(self, applied: OpId) -> None:
        self.reads.applied(applied.index)
        # Nothing waits for the core to know: it is told with its next events.
        self._events.append(Applied(applied.index))
        self.flusher.consider()

    def log_failed(self, failed: Failed) -> None:
        self.writes.replaced(failed.durable.index + 1, Unavailable(str(failed.error)))
        if not isinstance(failed.error, Full):
            self.fail(f"the log cannot be trusted beyond {failed.durable}: {failed.error}")
        elif not self.suspended:
            self.suspended = True
            log.warning("disk full tablet=%s durable=%s", self.tablet_id, failed.durable)
            self.later(self._repair)

    def metadata_failed(self, error: StelaeError, retry: Callable[[], None]) -> None:
        if isinstance(error, Full):
            self.later(retry)
        else:
            self.fail(f"consensus metadata cannot be saved: {error}")

    def fatal(self, effect: Fatal) -> None:
        log.error("invariant broken tablet=%s: %s", self.tablet_id, effect.reason)
        for line in effect.history:
            log.error("  %s", line)
        self.fail(f"invariant broken: {effect.reason}")

    # -- failure and repair ----------------------------------------------------------------------

    def condemn(self, reason: str) -> None:
        """Fail for what was found outside the log's own path, such as damage in the store. Clients are refused from now
        on. A leader's log is sound, so it hands over first, which takes an election timeout at most."""
        if self._closed or self._condemned:
            return
        self._condemned = reason
        if self.status.role is not Role.LEADER:
            self.fail(reason)
            return
        log.error("replica hands over before it fails tablet=%s reason=%s", self.tablet_id, reason)
        defer = self._ports.turns.defer
        self.deliver(self.transfers.request(None, lambda _error: defer(lambda: self.fail(reason))))

    def fail(self, reason: str) -> None:
        """Stop this replica for good; the node and its other tablets go on."""
        if self.failure:
            return
        before = self.state.value if not self._condemned else ReplicaState.RUNNING.value
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
        self.writes.fail_all(error)
        self.reads.fail_all(error)
        self.transfers.fail_all(error)

    def later(self, call: Callable[[], None]) -> None:
        """Call it after ``REPAIR_INTERVAL_US``, unless the replica has closed."""

        def run() -> None:
            if not self._closed:
                call()

        self._ports.turns.call_at(self._ports.turns.now_us() + REPAIR_INTERVAL_US, run)

    def _repair(self) -> None:
        def repaired(result: object) -> None:
            if isinstance(result, OpId):
                self.suspended = False
                log.info("disk has space again tablet=%s durable=%s", self.tablet_id, result)
                self._schedule_turn()
            elif isinstance(result, Full):
                self.later(self._repair)
            else:
                self.fail(f"the log cannot be repaired: {result}")

        self._ports.writer.repair(self.log, repaired)


def _headline(status: Status) -> tuple[Role, int, NodeId | None, bool]:
    return (status.role, status.term, status.leader, status.serving)
