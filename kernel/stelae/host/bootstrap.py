"""From files to a running replica: recovery of one tablet (state BOOTSTRAPPING).

1. The log says what is in it; a damaged one fails the replica (startup table).
2. The commit index is the larger of what the store flushed and the log's hint, clamped to the last
   entry (``durability.md`` rule 3): everything up to it was committed, the rest stays pending.
3. The store is opened at what it flushed, and entries up to the commit index are applied to it,
   through the same code that applies them later.
4. The core is restored with the term, the vote, the committed config, the shape of the log, and
   every config entry that may be newer than that config.

:func:`recover` blocks and touches no loop; :func:`assemble` connects the parts on the loop."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, TypeAlias

from stelae.host.apply import Applier, ApplyGroup
from stelae.host.consensus_meta import ConsensusRecord
from stelae.host.entry_cache import EntryCache
from stelae.host.executor import ReadyExecutor
from stelae.host.flush import Flusher
from stelae.host.layout import Layout
from stelae.host.reads import ReadIndexes
from stelae.host.replica import Replica, ReplicaPorts
from stelae.host.results import ResultsTable
from stelae.host.retention import Retention
from stelae.host.settings import TabletSettings
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.host.transfers import Transfers
from stelae.host.writes import WritePath
from stelae.spi.consensus import ConsensusCore, ConsensusEngine, LogView, TabletConfig, decode_config
from stelae.spi.errors import Corrupt
from stelae.spi.ids import LogId, NodeId, OpId, TabletId
from stelae.spi.log import EntryKind
from stelae.spi.schema import Schema
from stelae.spi.services import EngineServices, Files
from stelae.spi.store import TabletStore
from stelae.spi.wal import LogState, WalEngine

REPLAY_BYTES_MAX = 4 << 20  #: Bytes of entries that recovery holds at a time, at least one entry.


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """The engines of a node, with their configurations."""

    wal: WalEngine
    consensus: type[ConsensusEngine]
    consensus_config: Any
    store: type[TabletStore]
    store_config: Any
    services: EngineServices


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A tablet as its files describe it, with the store brought up to the commit index."""

    superblock: Superblock
    consensus: ConsensusRecord
    log: LogView
    store: TabletStore
    results: ResultsTable
    applied: OpId
    schemas: tuple[bytes, ...]
    timestamp: int


class TabletSource(Protocol):
    """Where a node's tablets come from when it starts (``stelae.lifecycle``). Calls may block, but for ``fail``."""

    @property
    def failed(self) -> Mapping[TabletId, str]:
        """Tablets that stay offline, and why; the node serves the others."""

    def create(self, tablet: TabletSettings) -> bool:
        """Create the configured tablet unless it exists or has failed; True if it was created."""

    def recover_all(self) -> Sequence[Recovered]:
        """End what a crash cut short, and recover every READY tablet; what cannot be recovered is in ``failed``."""

    def superblock_file(self, tablet_id: TabletId) -> SuperblockFile:
        """The superblock of a tablet, for its one writer."""

    def fail(self, tablet_id: TabletId, reason: str) -> None:
        """Keep a tablet offline."""


TabletSourceFactory: TypeAlias = Callable[[Files, Layout, Engines, tuple[str, str]], TabletSource]
"""Makes one from a node's disk and engines; the names are of its consensus and store engines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLimits:
    """Bounds of one replica's memory, in bytes."""

    cache_bytes_max: int = 32 << 20
    range_bytes_max: int = 1 << 20
    flush_bytes: int = 64 << 20
    memory_bytes_max: int = 256 << 20


def recover(superblock: Superblock, consensus: ConsensusRecord, engines: Engines, directory: str) -> Recovered:
    """Bring a READY tablet back from its files; ``directory`` is the store's own. Blocks. ``StorageError``: log, store
    or results cannot be read: this replica has failed."""
    log = superblock.log_id
    state = engines.wal.logs()[log]
    if state.damage is not None:
        damage = state.damage
        fact = f"{damage.detail}; the last good entry is {damage.last_good}"
        raise Corrupt(fact, path=damage.path, offset=damage.offset)
    commit = min(max(superblock.flushed.index, state.commit_hint), state.last.index)
    schemas = [Schema.from_bytes(body) for body in superblock.schemas]
    store = engines.store.open(
        directory,
        superblock.manifest,
        superblock.flushed,
        {schema.version: schema for schema in schemas},
        engines.store_config,
        engines.services,
    )
    replay = _Replay(engines.wal, log, state, store, ResultsTable.load(superblock.results))
    replay.run(superblock.flushed, consensus.committed_config, commit)
    return Recovered(
        superblock=superblock,
        consensus=consensus,
        log=LogView(
            base=state.base,
            last=state.last,
            term_runs=_term_runs(engines.wal, log, state),
            configs=tuple(replay.configs),
        ),
        store=store,
        results=replay.results,
        applied=replay.applied,
        schemas=(*superblock.schemas, *replay.schemas),
        timestamp=replay.timestamp,
    )


class _Replay:
    """One pass over the log: applies what is committed, collects configs from all of it."""

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

    def run(self, flushed: OpId, committed: TabletConfig, commit: int) -> None:
        """Read from the older of flushed and committed config to the end of the log."""
        self.applied = flushed
        base, end = self._state.base.index, self._state.last.index + 1
        first = max(base, min(flushed.index, committed.op_id.index)) + 1
        while first < end:
            entries = self._wal.read(self._log, first, end, REPLAY_BYTES_MAX)
            first = entries[-1].op_id.index + 1
            for entry in entries:
                if entry.kind is EntryKind.CONFIG:
                    self.configs.append(decode_config(entry))
            due = [e for e in entries if flushed.index < e.op_id.index <= commit]
            if due:
                group = ApplyGroup(due, self.results, self._store.schema)
                group.record(self._store.apply(group.to_apply) if group.to_apply else [])
                self.applied = group.last
                self.schemas += [schema.to_bytes() for schema in group.schemas]
                self.timestamp = max(self.timestamp, group.timestamp)


def _term_runs(wal: WalEngine, log: LogId, state: LogState) -> tuple[tuple[int, int], ...]:
    """The runs of equal terms above the base, by bisection: terms never decrease."""
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


def assemble(
    recovered: Recovered,
    engines: Engines,
    ports: ReplicaPorts,
    *,
    node_id: NodeId,
    superblock_file: SuperblockFile,
    limits: ReplicaLimits,
    rng: random.Random,
) -> Replica:
    """Make the replica of a recovered tablet and connect its parts; it does not run yet."""
    log = recovered.superblock.log_id
    ports.writer.open_log(log, recovered.log.last)
    core = _core(recovered, engines, node_id, rng, ports.turns.now_us())
    replica = Replica(log=log, core=core, vote_kinds=engines.consensus.is_vote_request, ports=ports)
    cache = EntryCache(recovered.log.last, limits.cache_bytes_max)
    tokens = count(1)
    batcher = ports.batcher(recovered.store.schema, recovered.store.key_bytes_max, recovered.superblock.partition)
    writes = WritePath(batcher, tokens, recovered.results, ports.time.now)
    applier = _applier(recovered, ports, cache, replica, writes)
    executor = ReadyExecutor(
        log=log,
        ports=ports,
        sink=replica,
        cache=cache,
        hard_state=recovered.consensus.hard_state,
        committed_config=recovered.consensus.committed_config,
        range_bytes_max=limits.range_bytes_max,
    )
    flusher = _flusher(recovered, ports, applier, replica, superblock_file, limits)
    reads = ReadIndexes(tokens, lambda: applier.timestamp)
    replica.wire(executor, applier, writes, reads, Transfers(tokens), flusher)
    return replica


def _core(recovered: Recovered, engines: Engines, node_id: NodeId, rng: random.Random, now_us: int) -> ConsensusCore:
    # A store may run ahead of a log that lost an unacknowledged tail; a core must not.
    known = min(recovered.applied.index, recovered.log.last.index)
    return engines.consensus.restore(
        node_id=node_id,
        hard_state=recovered.consensus.hard_state,
        log=recovered.log,
        commit=known,
        applied=known,
        committed_config=recovered.consensus.committed_config,
        config=engines.consensus_config,
        rng=rng,
        now_us=now_us,
    )


def _applier(
    recovered: Recovered, ports: ReplicaPorts, cache: EntryCache, replica: Replica, writes: WritePath
) -> Applier:
    return Applier(
        log=replica.log,
        store=recovered.store,
        results=recovered.results,
        applied=recovered.applied,
        schemas=recovered.schemas,
        timestamp=recovered.timestamp,
        cache=cache,
        reader=ports.reader,
        writer=ports.writer,
        pool=ports.pool,
        metrics=ports.metrics,
        on_answered=writes.answered,
        on_schema=writes.schema_changed,
        on_applied=replica.entries_applied,
        on_failed=replica.fail,
        later=replica.later,
    )


def _flusher(
    recovered: Recovered,
    ports: ReplicaPorts,
    applier: Applier,
    replica: Replica,
    superblock_file: SuperblockFile,
    limits: ReplicaLimits,
) -> Flusher:
    return Flusher(
        file=superblock_file,
        superblock=recovered.superblock,
        applier=applier,
        writer=ports.writer,
        pool=ports.metadata_pool,
        retention=_retention(recovered),
        flush_bytes=limits.flush_bytes,
        memory_bytes_max=limits.memory_bytes_max,
        on_failed=replica.fail,
    )


def _retention(recovered: Recovered) -> Retention:
    """What holds the log of a replica that has just been recovered."""
    committed = recovered.consensus.committed_config.op_id.index
    retention = Retention(recovered.superblock.flushed.index, committed)
    for config in recovered.log.configs:
        retention.config_appended(config.op_id.index)
    return retention
