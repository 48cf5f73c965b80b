"""Recovers a tablet from its files at start. It blocks and does not use the event loop.

1. The state of the log is checked. A damaged log fails the replica (``startup_decisions``).
2. A log that contradicts the superblock or the consensus metadata fails the replica too (``log_agreement``).
3. The commit index is the larger one of the flushed index and the log's commit hint, but at most the last entry
   (``durability.md`` rule 3). Everything up to it was committed; later entries stay pending.
4. The store is opened at the op id that it flushed. Entries up to the commit index are applied to it, with the same
   code that applies entries later.
5. The base, the end, the terms and the config entries of the log are returned, to restore the core
   (``host.assembly``)."""

from stelae.host.apply import group_of
from stelae.host.assembly import Engines, RecoveredTablet
from stelae.host.consensus_metadata import ConsensusRecord
from stelae.host.exactly_once_results import ResultsTable
from stelae.host.log_only import LogOnlyStore
from stelae.host.log_sizes import LogSizes
from stelae.host.superblock import Superblock
from stelae.lifecycle.log_agreement import LogContradicts, config_in_log, contradiction
from stelae.spi.consensus import LogView
from stelae.spi.errors import Corrupt
from stelae.spi.ids import ZERO, LogId, OpId
from stelae.spi.log import EntryKind
from stelae.spi.members import TabletConfig, decode_config
from stelae.spi.schema import Schema
from stelae.spi.store import TabletStore
from stelae.spi.wal import LogState, WalEngine

REPLAY_BYTES_MAX = 4 << 20  #: The most bytes of entries that recovery reads at a time, unless it is a single entry.


def recover(superblock: Superblock, consensus: ConsensusRecord, engines: Engines, directory: str) -> RecoveredTablet:
    """Recover a READY tablet. ``directory`` is that of its store. Blocks.

    Raises ``StorageError`` if log, store or results cannot be read: the replica has failed. Raises ``LogContradicts``
    if, moreover, the replica must never vote again."""
    log = superblock.log_id
    state = _checked_log(superblock, consensus, engines.wal)
    commit = min(max(superblock.flushed.index, state.commit_hint), state.last.index)
    schemas = [Schema.from_bytes(body) for body in superblock.schemas]
    kind = LogOnlyStore if superblock.log_only else engines.store
    store = kind.open(
        directory,
        superblock.manifest,
        superblock.flushed,
        {schema.version: schema for schema in schemas},
        engines.store_config,
        engines.services,
    )
    replay = _Replay(engines.wal, log, state, store, ResultsTable.load(superblock.results))
    replay.timestamp = superblock.timestamp
    replay.run(superblock.flushed, consensus.committed_config, commit)
    return RecoveredTablet(
        superblock=superblock,
        consensus=consensus,
        log=LogView(
            base=state.base,
            last=state.last,
            term_runs=_term_runs(engines.wal, log, state),
            configs=tuple(replay.configs),
            log_only=superblock.log_only,
            vote_floor=superblock.tombstone if isinstance(superblock.tombstone, OpId) else ZERO,
        ),
        store=store,
        results=replay.results,
        applied=replay.applied,
        schemas=(*superblock.schemas, *replay.schemas),
        timestamp=replay.timestamp,
        log_sizes=replay.sizes,
    )


def _checked_log(superblock: Superblock, consensus: ConsensusRecord, wal: WalEngine) -> LogState:
    """Return the state of a tablet's log, after a check that it is undamaged and agrees with the other records."""
    log = superblock.log_id
    state = wal.logs()[log]
    if state.damage is not None:
        damage = state.damage
        fact = f"{damage.detail}; the last good entry is {damage.last_good}"
        raise Corrupt(fact, path=damage.path, offset=damage.offset)
    config = config_in_log(consensus.committed_config.op_id, superblock.tombstone)
    term, flushed = consensus.term, superblock.flushed
    if wrong := contradiction(flushed, config, term, state, lambda index: wal.op_id_at(log, index)):
        raise LogContradicts(wrong)
    return state


class _Replay:
    """One pass over the log: it applies the committed entries, and collects the configs of all entries."""

    def __init__(self, wal: WalEngine, log: LogId, state: LogState, store: TabletStore, results: ResultsTable) -> None:
        self._wal = wal
        self._log = log
        self._state = state
        self._store = store
        self.results = results
        self.applied = OpId(0, 0)
        self.timestamp = 0
        self.configs: list[TabletConfig] = []
        self.schemas: list[bytes] = []
        self.sizes = LogSizes(state.base.index)

    def run(self, flushed: OpId, committed: TabletConfig, commit: int) -> None:
        """Read the log from the lower of the flushed op id and the committed config's op id to the end."""
        self.applied = flushed
        base, end = self._state.base.index, self._state.last.index + 1
        first = max(base, min(flushed.index, committed.op_id.index)) + 1
        while first < end:
            entries = self._wal.read(self._log, first, end, REPLAY_BYTES_MAX)
            first = entries[-1].op_id.index + 1
            for entry in entries:
                self.sizes.appended((entry,))
                if entry.kind is EntryKind.CONFIG:
                    self.configs.append(decode_config(entry))
            due = [e for e in entries if flushed.index < e.op_id.index <= commit]
            if due:
                group = group_of(due, self._store, self.results)
                group.record(self._store.apply(group.to_apply) if group.to_apply else [])
                self.applied = group.last
                self.schemas += [schema.to_bytes() for schema in group.schemas]
                self.timestamp = max(self.timestamp, group.timestamp)


def _term_runs(wal: WalEngine, log: LogId, state: LogState) -> tuple[tuple[int, int], ...]:
    """Return ``LogView.term_runs``, by bisection, because terms never decrease."""
    runs = []
    first = state.base.index + 1
    while first <= state.last.index:
        term = wal.op_id_at(log, first).term
        runs.append((first, term))
        low, high = first, state.last.index
        while low < high:
            middle = (low + high + 1) // 2
            if wal.op_id_at(log, middle).term == term:
                low = middle
            else:
                high = middle - 1
        first = low + 1
    return tuple(runs)
