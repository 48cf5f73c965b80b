"""What a node is told: plain settings, checked by whoever read or made them.

``stelae.config`` makes them out of ``node.toml``; tests make them by hand."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stelae.host.hybrid_clock import ClockSettings
from stelae.host.superblock import PartitionBounds
from stelae.spi.consensus import Member, TabletConfig
from stelae.spi.ids import ZERO, ClusterId, NodeId, TabletId
from stelae.spi.schema import Schema
from stelae.spi.settings import setting
from stelae.wire.settings import WireSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Section ``[node]``: ``directory`` holds all of the node, absolute once read; ``listen`` is
    ``host:port``, port 0 lets the system choose; ``insecure_listen`` says in as many words that
    other machines may connect although there is no security yet."""

    directory: str
    listen: str
    insecure_listen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Section ``[log]``: group commit of the whole node. Every group is synced."""

    queue_bytes_max: int = setting(
        64 << 20, unit="bytes", low=64 << 10, high=16 << 30, reason="full, it pushes writers back"
    )
    group_bytes_max: int = setting(
        8 << 20, unit="bytes", low=4096, high=1 << 30, reason="larger ones are slow and save little"
    )
    fast: bool = setting(
        False, reason="a preset: io_uring, direct I/O, re-used segments. Off: they gain little, and run on few systems"
    )
    lagging_peer_bytes_max: int = setting(
        0,
        unit="bytes",
        low=0,
        high=1 << 50,
        reason="of one tablet's log, kept only because a replica lacks it; beyond, that one needs a copy; 0: no bound",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Section ``[workers]``: threads of the node's pools."""

    background_threads: int = setting(
        2, unit="count", low=1, high=256, reason="preallocation, compaction and other long work"
    )
    metadata_threads: int = setting(
        16, unit="count", low=1, high=64, reason="votes: elections stall no log, and disks sync many at once"
    )
    apply_threads: int = setting(2, unit="count", low=1, high=256, reason="stores that cannot apply on the event loop")


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    """Section ``[maintenance]``: when rows are flushed, and how long the past can be read."""

    flush_bytes: int = setting(
        64 << 20, unit="bytes", low=64 << 10, high=16 << 30, reason="of one replica: large blocks, short replay"
    )
    flush_interval_ms: int = setting(
        120_000, unit="ms", low=10, high=86_400_000, reason="rows that few others follow: bounds the log to replay"
    )
    replica_memory_bytes_max: int = setting(
        256 << 20, unit="bytes", low=64 << 10, high=64 << 30, reason="of rows not flushed; then writers are pushed back"
    )
    memory_bytes: int = setting(
        1 << 30, unit="bytes", low=64 << 10, high=1 << 40, reason="of all rows not flushed; at 1.5 times writers wait"
    )
    history_retention_s: int = setting(
        604_800, unit="s", low=1, high=315_360_000, reason="how far back a snapshot or a diff can read"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TabletSettings:
    """A tablet that is to be; section ``[tablet]``: the one of a cluster that has no masters yet."""

    id: TabletId
    schema: Schema
    members: tuple[Member, ...]
    table_name: str = ""
    partition: PartitionBounds = field(default_factory=PartitionBounds)

    @property
    def hinted_leader(self) -> NodeId:
        """Who campaigns first where no config was ever agreed on: the first member."""
        return self.members[0].node_id

    def initial_config(self) -> TabletConfig:
        """The config that stands in consensus metadata before the first start."""
        ordered = tuple(sorted(self.members, key=lambda member: member.node_id))
        return TabletConfig(op_id=ZERO, members=ordered)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenEngine:
    """An engine that was picked: its name, its class, and its filled ``Config``."""

    name: str
    engine: type[Any]
    config: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """All that a node is told."""

    node: NodeSettings
    cluster_id: ClusterId
    tablet: TabletSettings | None
    wal: ChosenEngine
    consensus: ChosenEngine
    store: ChosenEngine
    wire: WireSettings = field(default_factory=WireSettings)
    log: LogSettings = field(default_factory=LogSettings)
    clock: ClockSettings = field(default_factory=ClockSettings)
    workers: WorkerSettings = field(default_factory=WorkerSettings)
    maintenance: MaintenanceSettings = field(default_factory=MaintenanceSettings)
    masters: tuple[Member, ...] = ()
    policy: ChosenEngine | None = None  #: Of masters.
    extra: Mapping[str, Any] = field(default_factory=dict)  #: Sections of services, by name.
