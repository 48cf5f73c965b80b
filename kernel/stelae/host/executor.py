"""The one executor of ``Ready``: carries out a core's effects in the order that keeps data safe.

Everything durable of one tablet goes through one ordered pipeline (``durability.md`` rule 1).
Each Ready is a stage of it and goes through these steps:

1. *hard state*: term and vote go to the metadata writer once everything before is durable, and
   everything behind waits for them.
2. *append*: entries are stamped, pinned in the cache, and handed to the log writer. Later Readies
   may append meanwhile (the log writer keeps the order); that is the pipelining.
3. *durable*: when the append and everything before it are durable, the core is told, and the
   replies that depended on it are sent, unless they speak for a term that has passed.

What depends on nothing durable of its own Ready (``at_once``, ``ranges``) leaves at step 2 (with a
hard state: ``at_once`` at step 1), so it never overtakes the hard state of an earlier Ready.

A pure core: no clock, no thread, no socket. Its ports are Protocols (``ports``)."""

from collections import deque
from dataclasses import dataclass
from enum import IntEnum

from stelae.host.entry_cache import EntryCache
from stelae.host.log_writer import LogWriter
from stelae.host.ports import HardStates, HybridTime, LogReader, PeerNetwork, ReadySink
from stelae.spi.consensus import (
    HardState,
    LogAppend,
    Outbound,
    Persisted,
    PersistFailed,
    Range,
    RangeCompacted,
    RangeSent,
    Ready,
    TabletConfig,
)
from stelae.spi.errors import ClockError, Compacted, Full, Overloaded, StelaeError
from stelae.spi.ids import LogId, OpId
from stelae.spi.log import Entry
from stelae.spi.wal import Failed, Outcome


class _ReadyStep(IntEnum):
    WAITING = 0
    SAVING = 1
    SAVED = 2
    APPENDING = 3
    DURABLE = 4


@dataclass(slots=True, eq=False)
class _PendingReady:
    """One Ready under way. A void one sends nothing and appends nothing, but keeps its vote.

    ``commit`` is the commit index as of this Ready: a later one may speak of entries with which
    this Ready's own have yet to be replaced, so it is no hint for this append."""

    ready: Ready
    commit: int
    step: _ReadyStep = _ReadyStep.WAITING
    void: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorPorts:
    """What every executor of a node works with; see ``ports``."""

    writer: LogWriter
    reader: LogReader
    hard_states: HardStates
    network: PeerNetwork
    time: HybridTime


class ReadyExecutor:
    """Carries out the Readies of one replica, on the event loop.

    ``log`` is open in the writer; ``cache`` is kept in step with it; ``hard_state`` and ``committed_config`` are as
    restored; a message carries ``range_bytes_max`` bytes of entries, or one larger entry."""

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
        self._range_bytes_max = range_bytes_max
        self._pipeline: deque[_PendingReady] = deque()
        self._commit = 0
        self._kept_through = 0
        self._cut_from: int | None = None
        self._config_due: TabletConfig | None = None
        self.stalled = False  #: True while the log writer pushes back: the replica takes no new input.

    @property
    def idle(self) -> bool:
        """True when every Ready so far is durable."""
        return not self._pipeline

    def execute(self, ready: Ready) -> None:
        """Begin to carry out a Ready; ids ascend."""
        sink = self._sink
        if ready.fatal is not None:
            sink.fatal(ready.fatal)
            return
        if ready.hard_state is not None:
            self._term = ready.hard_state.term
        if ready.commit is not None:
            self._commit = ready.commit
        for accepted in ready.accepted:
            sink.accepted(accepted.token, accepted.op_id)
        self._pipeline.append(_PendingReady(ready, self._commit))
        if ready.append is not None and ready.append.replace_from is not None:
            self._note_replacements()
        self._pump()
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
        for request in ready.copy_requests:
            sink.copy_requested(request)

    # -- the pipeline ----------------------------------------------------------------------------

    def _pump(self) -> None:
        """Move every stage as far as it may go, then retire the durable prefix."""
        position = 0
        while position < len(self._pipeline):
            stage = self._pipeline[position]
            if stage.step is _ReadyStep.WAITING:
                self._begin(stage, at_head=position == 0)
            if stage.step is _ReadyStep.SAVED:
                self._append(stage)
            if stage.step < _ReadyStep.APPENDING:
                return
            if stage.step is _ReadyStep.DURABLE and position == 0:
                self._pipeline.popleft()
                self._retire(stage)
                if not self._pipeline:
                    self._sink.drained()
            else:
                position += 1

    def _begin(self, stage: _PendingReady, *, at_head: bool) -> None:
        if stage.ready.hard_state is None:
            self._send_all(stage, stage.ready.at_once)
            stage.step = _ReadyStep.SAVED
        elif at_head:
            stage.step = _ReadyStep.SAVING
            self._send_all(stage, stage.ready.at_once)
            self._save_hard_state(stage, stage.ready.hard_state)

    def _save_hard_state(self, stage: _PendingReady, hard_state: HardState) -> None:
        self._submitted_hard_state = hard_state

        def saved(error: StelaeError | None) -> None:
            if error is not None:
                self._sink.metadata_failed(error, lambda: self._save_hard_state(stage, hard_state))
                return
            stage.step = _ReadyStep.SAVED
            self._pump()

        self._ports.hard_states.save(self._log.tablet_id, hard_state, self._config, saved)

    def _append(self, stage: _PendingReady) -> None:
        """Hand the entries to the log writer; stays at its step while the writer pushes back."""
        change = stage.ready.append
        if change is None or stage.void:
            stage.step = _ReadyStep.DURABLE
        else:
            size = sum(entry.size_bytes for entry in change.entries)
            try:
                entries = tuple(self._stamped(entry) for entry in change.entries)
                slot = self._ports.writer.reserve(self._log, size)
            except Overloaded:
                self.stalled = True
                self._ports.writer.when_room(self._resume)
                return
            except StelaeError as error:
                self._refused(stage, error)
                return
            stage.step = _ReadyStep.APPENDING
            self._cache.append(entries, change.replace_from)
            self._sink.entries_changed(entries, change.replace_from)
            self._ports.writer.append_async(
                slot,
                entries,
                replace_from=self._replace_from(change),
                commit_hint=stage.commit,
                done=lambda outcome: self._appended(stage, outcome),
            )
        self._announce_commit(stage)
        if not stage.void:
            for wanted in stage.ready.ranges:
                self._send_range(wanted)

    def _refused(self, stage: _PendingReady, error: StelaeError) -> None:
        """Fail a stage whose entries could not be handed over, once it is the first of the pipeline.

        Only then is the durable end of the log final. While an earlier append is in flight, the writer names an end
        below what that append makes durable: the core would give up entries that this replica acknowledges. The stage
        stays at its step until then; ``_pump`` tries it again whenever an earlier append has ended."""
        if self._pipeline[0] is not stage:
            return
        if isinstance(error, ClockError):
            error = Full(str(error), path=error.path)  # As with a full disk: nothing is lost, and it may pass.
        self._fail(stage, Failed(error, self._ports.writer.durable(self._log)))
        self._announce_commit(stage)

    def _announce_commit(self, stage: _PendingReady) -> None:
        """Let entries be applied, now that the cache follows the log up to this Ready. Earlier it might still hold
        entries that this Ready replaces with the committed ones."""
        if stage.ready.commit is not None:
            self._sink.committed(stage.ready.commit)

    def _replace_from(self, change: LogAppend) -> int | None:
        """After a failed replacement the old suffix may still stand on disk: replace it now."""
        if change.replace_from is None and change.entries:
            first = change.entries[0].op_id.index
            if first <= self._kept_through:
                self._kept_through = 0
                return first
        return change.replace_from

    def _stamped(self, entry: Entry) -> Entry:
        """Entries of our own leadership get their timestamp here, in log order."""
        if entry.timestamp:
            return entry
        return Entry(entry.op_id, entry.kind, self._ports.time.now(), entry.body)

    def _resume(self, _room: None) -> None:
        self.stalled = False
        self._pump()

    def _appended(self, stage: _PendingReady, outcome: Outcome) -> None:
        if stage.void:
            return
        if isinstance(outcome, Failed):
            self._fail(stage, outcome)
        else:
            stage.step = _ReadyStep.DURABLE
        self._pump()

    def _retire(self, stage: _PendingReady) -> None:
        """A stage at the head is durable: tell the core, send what waited for it."""
        ready = stage.ready
        if self._cache.replacing_from is not None:
            if ready.append is not None and not stage.void:
                self._cut_from = None
            self._note_replacements()
        self._save_due_config()
        if stage.void:
            return
        self._send_all(stage, ready.after_persist)
        if ready.hard_state is not None or ready.append is not None:
            self._sink.deliver(Persisted(ready.id))

    def _send_all(self, stage: _PendingReady, outbounds: tuple[Outbound, ...]) -> None:
        """Send what the stage owes; a reply tied to a term that has passed is dropped."""
        if stage.void:
            return
        for outbound in outbounds:
            if outbound.term == self._term:
                self._ports.network.send(self._log.tablet_id, outbound, ())

    def _fail(self, origin: _PendingReady, failed: Failed) -> None:
        """An append failed: no reply that depends on it or on anything later is ever sent. Hard states in the pipeline
        still go to disk: the core has moved to those terms, and a later message of them must find them durable."""
        durable_index = failed.durable.index
        for stage in self._pipeline:
            if stage.ready.id < origin.ready.id:
                continue
            stage.void = True
            if stage.step >= _ReadyStep.SAVED:
                stage.step = _ReadyStep.DURABLE
            if stage.ready.append is not None and stage.ready.append.replace_from is not None:
                durable_index = min(durable_index, stage.ready.append.replace_from - 1)
        self._kept_through = failed.durable.index
        self._cache.cut(durable_index + 1)
        self._sink.entries_cut(durable_index + 1)
        if durable_index < failed.durable.index:
            self._cut_from = durable_index + 1
        self._note_replacements()
        self._sink.deliver(PersistFailed(origin.ready.id, durable_index))
        self._sink.log_failed(failed)

    def _note_replacements(self) -> None:
        """Tell the cache from where on the log on disk is not the one that the core knows: the suffixes that Readies
        under way replace, and what a failed replacement left behind until the next append has replaced it."""
        found = [] if self._cut_from is None else [self._cut_from]
        for stage in self._pipeline:
            change = stage.ready.append
            if change is not None and change.replace_from is not None and not stage.void:
                found.append(change.replace_from)
        self._cache.replacing_from = min(found, default=None)

    def _save_due_config(self) -> None:
        """Save a committed config once its own entry is durable here. Sooner, a crash would leave metadata that
        remembers a config beside a log that does not, which start-up cannot tell from a log that was lost."""
        due = self._config_due
        if due is None:
            return
        if due.op_id.index <= self._cache.settled(self._ports.writer.durable(self._log).index):
            self._config_due = None
            self._save_config(due)

    def _save_config(self, config: TabletConfig) -> None:
        """A committed config becomes durable in metadata; nothing but collection waits for it."""
        if config.op_id < self._config.op_id:
            return  # a retry that a later config has overtaken
        self._config = config

        def saved(error: StelaeError | None) -> None:
            if error is not None:
                self._sink.metadata_failed(error, lambda: self._save_config(config))
            else:
                self._sink.config_durable(config)

        self._ports.hard_states.save(self._log.tablet_id, self._submitted_hard_state, config, saved)

    # -- ranges ----------------------------------------------------------------------------------

    def _send_range(self, wanted: Range) -> None:
        first, end = wanted.prev.index + 1, wanted.last.index + 1
        if not self._stands(wanted):
            self._sink.deliver(RangeSent(wanted.to, wanted.last, None))
        elif first == end:
            self._ship(wanted, [])
        else:
            entries = self._cache.get(first, end, self._range_bytes_max)
            if entries is not None:
                self._ship(wanted, entries)
            else:
                self._read_then_ship(wanted, first, min(end, self._cache.first_index))

    def _stands(self, wanted: Range) -> bool:
        """Rule 2: both ends are still what the core meant. While the term has not passed its leader's log only grows,
        so what the cache no longer holds (durable and old) cannot have changed either."""
        if wanted.term != self._term or wanted.last.index >= self._cache.end_index:
            return False
        for op_id in (wanted.prev, wanted.last):
            cached = self._cache.op_id_at(op_id.index)
            if cached is not None and cached != op_id:
                return False
        return True

    def _read_then_ship(self, wanted: Range, first: int, end: int) -> None:
        def arrived(result: list[Entry] | StelaeError) -> None:
            if isinstance(result, list) and self._stands(wanted):
                self._ship(wanted, result)
                return
            if isinstance(result, Compacted):
                self._sink.deliver(RangeCompacted(wanted.to, wanted.last, OpId(*result.base)))
            else:
                self._sink.deliver(RangeSent(wanted.to, wanted.last, None))

        self._ports.reader.read(self._log, first, end, self._range_bytes_max, arrived)

    def _ship(self, wanted: Range, entries: list[Entry]) -> None:
        outbound = Outbound(wanted.to, wanted.message, wanted.term)
        self._ports.network.send(self._log.tablet_id, outbound, entries)
        through = entries[-1].op_id if entries else wanted.prev
        if through != wanted.last:
            self._sink.deliver(RangeSent(wanted.to, wanted.last, through))
