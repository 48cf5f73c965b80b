"""The settings of a node, as plain values.

``stelae.config`` reads and checks them from ``node.toml``; tests construct them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stelae.host.hybrid_clock import ClockSettings
from stelae.host.superblock import PartitionBounds
from stelae.spi.ids import ZERO, ClusterId, NodeId, TabletId
from stelae.spi.members import Member, TabletConfig
from stelae.spi.schema import Schema
from stelae.spi.settings import setting
from stelae.wire.settings import WireSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Section ``[node]``."""

    directory: str  #: Contains all files of the node. Absolute once it is read.
    listen: str  #: ``host:port``. With port 0 the system chooses a free port.
    insecure_listen: bool = False  #: Allows other machines to connect, although connections are not secured yet.
    advertise: str = ""  #: ``host:port`` at which other nodes reach this one, if not ``listen``.


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Section ``[log]``: the group commit of the node. Every group is synced."""

    queue_bytes_max: int = setting(
        64 << 20, unit="bytes", low=64 << 10, high=16 << 30, reason="writers wait while it is full"
    )
    group_bytes_max: int = setting(
        8 << 20, unit="bytes", low=4096, high=1 << 30, reason="larger groups are slow and save little"
    )
    fast: bool = setting(
        False, reason="a preset: io_uring, direct I/O, reused segments; off, because few systems support it"
    )
    lagging_peer_bytes_max: int = setting(
        0,
        unit="bytes",
        low=0,
        high=1 << 50,
        reason="log of a tablet that is kept for a lagging replica; one that lags further needs a copy; 0: no bound",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Section ``[workers]``: the threads of the node's pools."""

    background_threads: int = setting(
        2, unit="count", low=1, high=256, reason="preallocation, compaction and other long work"
    )
    metadata_threads: int = setting(
        16,
        unit="count",
        low=1,
        high=64,
        reason="for votes: elections do not delay the log, and disks sync many files at once",
    )
    copy_serve_threads: int = setting(
        2, unit="count", low=1, high=64, reason="they take snapshots for copies from this node, and as many read them"
    )
    apply_threads: int = setting(
        2, unit="count", low=1, high=256, reason="for stores that cannot apply on the event loop"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    """Section ``[maintenance]``: when rows are flushed, and how far back reads can go."""

    flush_bytes: int = setting(
        64 << 20, unit="bytes", low=64 << 10, high=16 << 30, reason="per replica: large blocks, but a short replay"
    )
    flush_interval_ms: int = setting(
        120_000, unit="ms", low=10, high=86_400_000, reason="for tablets with few writes: bounds the log to replay"
    )
    replica_memory_bytes_max: int = setting(
        256 << 20,
        unit="bytes",
        low=64 << 10,
        high=64 << 30,
        reason="rows of one replica that are not flushed; above it writers wait",
    )
    memory_bytes: int = setting(
        1 << 30,
        unit="bytes",
        low=64 << 10,
        high=1 << 40,
        reason="all rows that are not flushed; above it replicas are flushed, at 1.5 times of it writers wait",
    )
    history_retention_s: int = setting(
        604_800, unit="s", low=1, high=315_360_000, reason="how far back a snapshot or a diff can read"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TabletSettings:
    """A tablet to create. Section ``[tablet]`` describes the only tablet of a cluster without masters."""

    id: TabletId
    schema: Schema
    members: tuple[Member, ...]  #: Empty for a replica that joins later: it gets its config with the log.
    table_name: str = ""
    partition: PartitionBounds = field(default_factory=PartitionBounds)

    @property
    def hinted_leader(self) -> NodeId | None:
        """The first member. It campaigns first if no config was ever committed."""
        return self.members[0].node_id if self.members else None

    def initial_config(self) -> TabletConfig:
        """Return the config that is in consensus metadata before the first start."""
        ordered = tuple(sorted(self.members, key=lambda member: member.node_id))
        return TabletConfig(op_id=ZERO, members=ordered)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenEngine:
    """An engine that the settings chose: its name, its class, and its ``Config`` with values."""

    name: str
    engine: type[Any]
    config: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """All settings of a node."""

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
    policy: ChosenEngine | None = None  #: For masters only.
    copy: ChosenEngine | None = None  #: ``None``: the node neither serves nor makes copies.
    extra: Mapping[str, Any] = field(default_factory=dict)  #: The sections of services, by name.
