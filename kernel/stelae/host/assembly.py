"""Builds a replica from a recovered tablet. ``stelae.lifecycle`` recovers tablets.

The core is restored from the term, the vote, the committed config, the log's base, end and terms, and every config
entry that may be newer than the committed config. :func:`assemble` connects the core with the parts that drive it."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Protocol, TypeAlias

from stelae.host.apply import Applier
from stelae.host.consensus_metadata import ConsensusRecord
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.entry_cache import EntryCache
from stelae.host.exactly_once_results import ResultsTable
from stelae.host.executor import ReadyExecutor
from stelae.host.flush_and_collect import Flusher
from stelae.host.leadership_transfers import PendingTransfers
from stelae.host.log_retention import LogRetentionLimit
from stelae.host.log_sizes import LogSizes
from stelae.host.member_changes import PendingMemberChanges
from stelae.host.read_faults import NotedReader
from stelae.host.read_index_waits import ReadIndexWaits
from stelae.host.replica import Replica
from stelae.host.replica_ports import ReplicaPorts
from stelae.host.settings import TabletSettings
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.host.writes import WritePath
from stelae.spi.consensus import ConsensusCore, ConsensusEngine, LogView
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.services import EngineServices, Files
from stelae.spi.store import TabletStore
from stelae.spi.wal import WalEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """The engines of a node and their configurations."""

    wal: WalEngine
    consensus: type[ConsensusEngine]
    consensus_config: Any
    store: type[TabletStore]
    store_config: Any
    services: EngineServices


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredTablet:
    """A tablet that was recovered from its files. Its store has applied all entries up to the known commit index."""

    superblock: Superblock
    consensus: ConsensusRecord
    log: LogView
    store: TabletStore
    results: ResultsTable
    applied: OpId
    schemas: tuple[bytes, ...]
    timestamp: int
    log_sizes: LogSizes  #: The sizes of the entries that recovery has read.


class TabletSource(Protocol):
    """Creates and recovers the tablets of a node when it starts (``stelae.lifecycle``).

    All methods except ``fail`` may block."""

    @property
    def failed(self) -> Mapping[TabletId, str]:
        """The tablets that stay offline, and why. The node serves the others."""

    def create(self, tablet: TabletSettings) -> bool:
        """Create the configured tablet unless it exists or has failed. Return whether it was created."""

    def recover_all(self) -> Sequence[RecoveredTablet]:
        """Finish deletions that a crash interrupted, and recover every READY tablet.

        A tablet that cannot be recovered is in ``failed``. Raises ``ConfigError`` if the configured tablet contradicts
        the stored one; the node then does not start."""

    def superblock_file(self, tablet_id: TabletId) -> SuperblockFile:
        """Return the superblock file of a tablet, for the only writer of it."""

    def fail(self, tablet_id: TabletId, reason: str) -> None:
        """Keep a tablet offline."""


TabletSourceFactory: TypeAlias = Callable[[Files, DirectoryLayout, Engines, tuple[str, str]], TabletSource]
"""Makes a ``TabletSource`` from a node's disk, its engines, and the names of its consensus and store engines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLimits:
    """Bounds of one replica's memory, in bytes."""

    cache_bytes_max: int = 32 << 20
    range_bytes_max: int = 1 << 20
    flush_bytes: int = 64 << 20
    memory_bytes_max: int = 256 << 20
    lagging_peer_bytes_max: int = 0


def assemble(
    recovered: RecoveredTablet,
    engines: Engines,
    ports: ReplicaPorts,
    *,
    node_id: NodeId,
    superblock_file: SuperblockFile,
    limits: ReplicaLimits,
    rng: random.Random,
) -> Replica:
    """Build the replica of a recovered tablet and connect its parts. The caller starts it."""
    log = recovered.superblock.log_id
    ports.writer.open_log(log, recovered.log.last)
    core = _core(recovered, engines, node_id, rng, ports.turns.now_us())
    replica = Replica(log=log, core=core, vote_kinds=engines.consensus.is_vote_request, ports=ports)
    ports = replace(ports, reader=NotedReader(ports.reader, replica.read_faults))
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
    reads = ReadIndexWaits(tokens, lambda: applier.timestamp)
    transfers, member_changes = PendingTransfers(tokens), PendingMemberChanges(tokens)
    replica.connect(executor, applier, writes, reads, transfers, member_changes, flusher)
    return replica


def _core(
    recovered: RecoveredTablet, engines: Engines, node_id: NodeId, rng: random.Random, now_us: int
) -> ConsensusCore:
    # Recovery refuses a log that ends below what the store flushed, and applies only entries of the log. So the applied
    # index is the highest index that is known to be committed.
    known = recovered.applied.index
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
    recovered: RecoveredTablet, ports: ReplicaPorts, cache: EntryCache, replica: Replica, writes: WritePath
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
        on_failed=replica.read_faults.store_failed,
        retry_later=replica.retry_later,
    )


def _flusher(
    recovered: RecoveredTablet,
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
        retention=retention_of(recovered, limits.lagging_peer_bytes_max),
        log_base=recovered.log.base,
        flush_bytes=limits.flush_bytes,
        memory_bytes_max=limits.memory_bytes_max,
        on_failed=replica.read_faults.store_failed,
    )


def retention_of(recovered: RecoveredTablet, lagging_peer_bytes_max: int) -> LogRetentionLimit:
    """Return the reasons to keep the log of a replica that was just recovered.

    The bound does not hold for a replica without rows. What it collects it has nowhere else, and a voter that lacks it
    could not even copy it from there."""
    committed = recovered.consensus.committed_config.op_id.index
    flushed, base = recovered.superblock.flushed.index, recovered.log.base.index
    bound = 0 if recovered.superblock.log_only else lagging_peer_bytes_max
    retention = LogRetentionLimit(flushed, committed, base, bound, recovered.log_sizes)
    for config in recovered.log.configs:
        retention.config_appended(config.op_id.index)
    return retention
