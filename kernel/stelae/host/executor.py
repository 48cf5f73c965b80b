"""The executor of ``Ready``: carries out the effects of a consensus core in the order that keeps data safe.

Everything that one tablet makes durable goes through one ordered pipeline of Readies (``durability.md`` rule 1). Each
Ready goes through these steps:

1. *Hard state.* Term and vote are saved when every earlier Ready is durable. All later Readies wait for this save.
   Reason: no message that depends on a term or a vote may be sent before a crash can no longer undo it.
2. *Append.* The entries get their timestamps, are pinned in the cache, and go to the log writer. Later Readies may
   append at the same time, because the log writer keeps the order.
3. *Durable.* When the append and every earlier Ready are durable, the messages of ``after_persist`` are sent, callers
   learn that the replica has stood down, and the core gets ``Persisted``. A message of a term that has passed is
   dropped.

The messages of ``at_once`` and ``ranges`` do not depend on what their own Ready makes durable. They are sent at step 2,
and those of ``at_once`` at step 1 if the Ready has a hard state. So they never overtake the hard state of an earlier
Ready.

This module is pure: it uses no clock, thread or socket. What it needs from outside is in ``ports``."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from stelae.host.entry_cache import EntryCache
from stelae.host.log_writer import LogWriter
from stelae.host.ports import HardStates, HybridTime, LogReader, PeerNetwork, ReadySink
from stelae.host.range_sender import RangeSender
from stelae.spi.consensus import HardState, LogAppend, Outbound, Ready
from stelae.spi.consensus_events import Persisted, PersistFailed
from stelae.spi.errors import ClockError, Full, Overloaded, StelaeError
from stelae.spi.ids import LogId
from stelae.spi.log import Entry
from stelae.spi.members import TabletConfig
from stelae.spi.wal import Failed, Outcome


class _ReadyStep(IntEnum):
    """How far a Ready has been carried out. A Ready goes through these steps in order."""

    WAITING = 0
    SAVING = 1
    SAVED = 2
    APPENDING = 3
    DURABLE = 4


@dataclass(slots=True, eq=False)
class _PendingReady:
    """One Ready that is being carried out."""

    ready: Ready
    #: The commit index as of this Ready: the commit hint of its append. A later commit index must not be the hint,
    #: because it may be of entries that replace those of this Ready.
    commit: int
    step: _ReadyStep = _ReadyStep.WAITING
    #: Set when an append of this or of an earlier Ready failed. A void Ready sends and appends nothing. Its hard state
    #: is still saved.
    void: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorPorts:
    """The ports that all executors of a node share."""

    writer: LogWriter
    reader: LogReader
    hard_states: HardStates
    network: PeerNetwork
    time: HybridTime


class ReadyExecutor:
    """Carries out the Readies of one replica, on the event loop.

    Args:
        log: the replica's log, which is open in the log writer.
        ports: the ports of the node.
        sink: takes the effects that are neither disk nor network.
        cache: the recent entries of the log. The executor updates it with every append.
        hard_state: the hard state with which the core was restored.
        committed_config: the committed config with which the core was restored.
        range_bytes_max: the most bytes of entries in one message, unless it is a single larger entry."""

    def __init__(
        self,
        *,
        log: LogId,
        ports: ExecutorPorts,
        sink: ReadySink,
        cache: EntryCache,
        hard_state: HardState,
        committed_config: TabletConfig,
        range_bytes_max: int,
    ) -> None:
        self._log = log
        self._ports = ports
        self._sink = sink
        self._cache = cache
        self._term = hard_state.term
        self._submitted_hard_state = hard_state
        self._config = committed_config
        self._ranges = RangeSender(log, ports.reader, ports.network, sink, cache, range_bytes_max)
        self._ranges.term = hard_state.term
        self._pipeline: deque[_PendingReady] = deque()
        self._commit = 0
        #: After a failed replacement the log on disk may still have the old suffix, up to this index; 0: it has not.
        self._old_suffix_through = 0
        #: From this index on, the log on disk may have entries that the core no longer knows; ``None``: it has not.
        self._cut_from: int | None = None
        #: A committed config whose own entry is not durable yet.
        self._config_due: TabletConfig | None = None
        self.stalled = False  #: True while the log writer's queue is full. The replica then accepts no input.
        self._halted = False
        self._saves = 0  # Saves of hard state and config that have not ended.

    @property
    def idle(self) -> bool:
        """Whether every Ready so far is durable."""
        return not self._pipeline

    @property
    def saving(self) -> bool:
        """Whether a save of hard state or config is in progress."""
        return self._saves > 0

    @property
    def waits_to_save(self) -> bool:
        """Whether a save has failed and is to be tried again later, as on a full disk."""
        return bool(self._pipeline) and self._pipeline[0].step is _ReadyStep.SAVING and not self.saving

    def halt(self) -> None:
        """Begin no further step, for good: save, append and send nothing any more. What is in progress may still end.

        Once it is not ``saving``, nothing of this executor writes the consensus metadata."""
        self._halted = True

    def execute(self, ready: Ready) -> None:
        """Start to carry out a Ready. Readies must be given in the order of their ids."""
        sink = self._sink
        if ready.fatal is not None:
            sink.fatal(ready.fatal)
            return
        if ready.hard_state is not None:
            self._term = self._ranges.term = ready.hard_state.term
        if ready.commit is not None:
            self._commit = ready.commit
        for accepted in ready.accepted:
            sink.accepted(accepted.token, accepted.op_id)
        self._pipeline.append(_PendingReady(ready, self._commit))
        if ready.append is not None and ready.append.replace_from is not None:
            self._note_replacements()
        self._advance()
        for rejection in ready.rejections:
            sink.rejected(rejection)
        if ready.beats is not None:
            sink.beats_changed(ready.beats)
        if ready.committed_config is not None:
            self._config_due = ready.committed_config
            self._save_due_config()
        for read in ready.reads_ready:
            sink.read_ready(read)
        for token in ready.handed_over:
            sink.handed_over(token)
        for changed in ready.config_changes:
            sink.members_changed(changed.token, changed.config)
        for token in ready.aborted:
            sink.change_aborted(token)
        for request in ready.copy_requests:
            sink.copy_requested(request)

    # -- the pipeline ----------------------------------------------------------------------------

    def _advance(self) -> None:
        """Move every pending Ready as far as possible, and retire the durable ones at the head of the pipeline."""
        position = 0
        while position < len(self._pipeline) and not self._halted:
            pending = self._pipeline[position]
            if pending.step is _ReadyStep.WAITING:
                self._begin(pending, at_head=position == 0)
            if pending.step is _ReadyStep.SAVED:
                self._append(pending)
            if pending.step < _ReadyStep.APPENDING:
                return
            if pending.step is _ReadyStep.DURABLE and position == 0:
                self._pipeline.popleft()
                self._retire(pending)
                if not self._pipeline:
                    self._sink.drained()
            else:
                position += 1

    def _begin(self, pending: _PendingReady, *, at_head: bool) -> None:
        if pending.ready.hard_state is None:
            self._send_all(pending, pending.ready.at_once)
            pending.step = _ReadyStep.SAVED
        elif at_head:
            pending.step = _ReadyStep.SAVING
            self._send_all(pending, pending.ready.at_once)
            self._save_hard_state(pending, pending.ready.hard_state)

    def _save_hard_state(self, pending: _PendingReady, hard_state: HardState) -> None:
        self._submitted_hard_state = hard_state

        def saved(error: StelaeError | None) -> None:
            if error is not None:
                self._sink.metadata_failed(error, lambda: self._save_hard_state(pending, hard_state))
                return
            pending.step = _ReadyStep.SAVED
            self._advance()

        self._save(hard_state, saved)

    def _save(self, hard_state: HardState, saved: Callable[[StelaeError | None], None]) -> None:
        self._saves += 1

        def ended(error: StelaeError | None) -> None:
            self._saves -= 1
            if not self._halted:
                saved(error)

        self._ports.hard_states.save(self._log.tablet_id, hard_state, self._config, ended)

    def _append(self, pending: _PendingReady) -> None:
        """Pass the entries to the log writer. If its queue is full, the Ready stays at its step and is tried again."""
        change = pending.ready.append
        if change is None or pending.void:
            pending.step = _ReadyStep.DURABLE
        else:
            size = sum(entry.size_bytes for entry in change.entries)
            try:
                entries = tuple(self._stamped(entry) for entry in change.entries)
                slot = self._ports.writer.reserve(self._log, size)
            except Overloaded:
                if not self.stalled:
                    self.stalled = True
                    self._ports.writer.when_room(self._resume)
                return
            except StelaeError as error:
                self._append_refused(pending, error)
                return
            pending.step = _ReadyStep.APPENDING
            self._cache.append(entries, change.replace_from)
            self._sink.entries_changed(entries, change.replace_from)
            self._ports.writer.append_async(
                slot,
                entries,
                replace_from=self._replace_from(change),
                commit_hint=pending.commit,
                done=lambda outcome: self._append_ended(pending, outcome),
            )
        self._announce_commit(pending)
        if not pending.void:
            for asked in pending.ready.ranges:
                self._ranges.send(asked)

    def _append_refused(self, pending: _PendingReady, error: StelaeError) -> None:
        """Fail a Ready whose entries the log writer refused, once it is the first one in the pipeline.

        Only then is the durable end of the log final. While an earlier append is in flight, the durable end is below
        what that append will make durable, and the core would give up entries that this replica then acknowledges.
        Until then the Ready stays at its step. ``_advance`` tries it again whenever an earlier append has ended."""
        if self._pipeline[0] is not pending:
            return
        if isinstance(error, ClockError):
            error = Full(str(error), path=error.path)  # As with a full disk: nothing is lost, and it may succeed later.
        self._fail(pending, Failed(error, self._ports.writer.durable(self._log)))
        self._announce_commit(pending)

    def _announce_commit(self, pending: _PendingReady) -> None:
        """Pass on the commit index of a Ready, after the Ready's entries are in the cache.

        Before that, the cache might still have entries that this Ready replaces with the committed ones."""
        if pending.ready.commit is not None:
            self._sink.committed(pending.ready.commit)

    def _replace_from(self, change: LogAppend) -> int | None:
        """Return from which index on this append must replace the log.

        After a failed replacement the old suffix may still be on disk. The next append then must replace it."""
        if change.replace_from is None and change.entries:
            first = change.entries[0].op_id.index
            if first <= self._old_suffix_through:
                self._old_suffix_through = 0
                return first
        return change.replace_from

    def _stamped(self, entry: Entry) -> Entry:
        """Give an entry of this replica's own leadership its timestamp, in log order."""
        if entry.timestamp:
            return entry
        return Entry(entry.op_id, entry.kind, self._ports.time.now(), entry.body)

    def _resume(self, _room: None) -> None:
        self.stalled = False
        self._advance()

    def _append_ended(self, pending: _PendingReady, outcome: Outcome) -> None:
        if pending.void or self._halted:
            return
        if isinstance(outcome, Failed):
            self._fail(pending, outcome)
        else:
            pending.step = _ReadyStep.DURABLE
        self._advance()

    def _retire(self, pending: _PendingReady) -> None:
        """Finish the first Ready of the pipeline, which is durable: send its ``after_persist``, inform the core."""
        ready = pending.ready
        if self._cache.replacing_from is not None:
            if ready.append is not None and not pending.void:
                self._cut_from = None
            self._note_replacements()
        self._save_due_config()
        for token in ready.stood_down:  # Also of a void Ready: its hard state is saved all the same.
            self._sink.stood_down(token)
        if pending.void:
            return
        self._send_all(pending, ready.after_persist)
        if ready.hard_state is not None or ready.append is not None:
            self._sink.deliver(Persisted(ready.id))

    def _send_all(self, pending: _PendingReady, outbounds: tuple[Outbound, ...]) -> None:
        """Send messages of a Ready, except those of a term that has passed."""
        if pending.void:
            return
        for outbound in outbounds:
            if outbound.term == self._term:
                self._ports.network.send(self._log.tablet_id, outbound, ())

    def _fail(self, origin: _PendingReady, failed: Failed) -> None:
        """Handle a failed append.

        1. The Ready and all later ones become void: no message that depends on them is ever sent. Their hard states are
           still saved, because the core has moved to those terms and will send messages in them.
        2. The cache and the core's view of the log are cut to the durable end: at most what the log writer reported,
           and below every replacement that did not become durable, of this failure or an earlier one.
        3. The core gets ``PersistFailed``, then the replica ``log_failed``.
        4. The commit indexes of Readies that waited for their append are passed on. The core does not repeat them."""
        durable_index = self._cache.settled(failed.durable.index)
        parked = [one for one in self._pipeline if one.step is _ReadyStep.SAVED and one.ready.id > origin.ready.id]
        for pending in self._pipeline:
            if pending.ready.id < origin.ready.id:
                continue
            pending.void = True
            if pending.step >= _ReadyStep.SAVED:
                pending.step = _ReadyStep.DURABLE
        self._old_suffix_through = failed.durable.index
        self._cache.cut(durable_index + 1)
        self._sink.entries_cut(durable_index + 1)
        if durable_index < failed.durable.index:
            self._cut_from = durable_index + 1
        self._note_replacements()
        self._sink.deliver(PersistFailed(origin.ready.id, durable_index))
        self._sink.log_failed(failed)
        for pending in parked:
            self._announce_commit(pending)

    def _note_replacements(self) -> None:
        """Compute from which index on the log on disk may differ from the log that the core knows.

        It differs in the suffixes that pending Readies replace, and, until the next append replaces it, in the suffix
        that a failed replacement left on disk."""
        found = [] if self._cut_from is None else [self._cut_from]
        for pending in self._pipeline:
            change = pending.ready.append
            if change is not None and change.replace_from is not None and not pending.void:
                found.append(change.replace_from)
        self._cache.replacing_from = min(found, default=None)

    def _save_due_config(self) -> None:
        """Save a committed config once its own entry is durable in the log.

        If it were saved earlier, a crash could leave metadata with a config that the log does not have. At the next
        start that looks like a log that lost entries."""
        due = self._config_due
        if due is None:
            return
        if due.op_id.index <= self._cache.settled(self._ports.writer.durable(self._log).index):
            self._config_due = None
            self._save_config(due)

    def _save_config(self, config: TabletConfig) -> None:
        """Make a committed config durable in metadata. Only the collection of the log waits for it."""
        if config.op_id < self._config.op_id:
            return  # This is a retry, and a later config has been saved meanwhile.
        self._config = config

        def saved(error: StelaeError | None) -> None:
            if error is not None:
                self._sink.metadata_failed(error, lambda: self._save_config(config))
            else:
                self._sink.config_durable(config)

        self._save(self._submitted_hard_state, saved)
