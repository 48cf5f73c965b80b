"""The shared state of a masters run, and the committed log and catalog, which only the invariants may use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from stelae.protocol.master_heartbeats import Heartbeat
from stelae.server.master.core.batches import CatalogBatch
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.settings import MasterSettings
from stelae.sim.coverage import Coverage
from stelae.sim.invariants.base import Violation
from stelae.sim.masters.network import MastersNetwork
from stelae.sim.scheduler import Scheduler
from stelae.spi.ids import ZERO, ClusterId, NodeId, OpId
from stelae.spi.members import Member, TabletConfig

CLUSTER = ClusterId("simulated")

FOREIGN = 90
"""Position of the master of another cluster, in runs that have one."""

SETTINGS = MasterSettings(
    server_silent_ms=1_500,
    server_dead_ms=4_000,
    create_timeout_ms=3_000,
    scan_interval_ms=300,
    policy_interval_ms=500,
    action_retry_ms=500,
    batch_records_max=3,
)
"""Settings as in production, except shorter times, and small batches so that background work needs several of them."""


class Committed(NamedTuple):
    """One committed entry of the log. ``batch`` is ``None`` for an entry without records.

    ``config`` is that of an entry which changes the masters."""

    op_id: OpId
    batch: CatalogBatch | None
    config: TabletConfig | None = None


ToldMasters: TypeAlias = Callable[[str, TabletConfig, TabletConfig | None, TabletConfig], None]
"""Called when a server or a client, given by name, has received a config of the masters: with that config, the one that
it followed until then, and the one that it follows from now on."""


def server_node(position: int) -> NodeId:
    """Return the node id of a tablet server."""
    return NodeId(f"{0x5E0 + position:032x}")


def master_node(position: int) -> NodeId:
    """Return the node id of a master."""
    return NodeId(f"{0x3A0 + position:032x}")


def master_member(position: int) -> Member:
    """Return a master as the settings of all masters list it."""
    return Member(node_id=master_node(position), address=f"10.1.0.{position + 1}:7051")


class MastersWorld:
    """The scheduler, network and coverage of a run, and the committed log with the catalog that it produces."""

    def __init__(self, scheduler: Scheduler, network: MastersNetwork, coverage: Coverage) -> None:
        self.scheduler = scheduler
        self.network = network
        self.coverage = coverage
        self.log: list[Committed] = []
        self.committed_catalog = Catalog.empty()
        self.catalogs = {self.committed_catalog.applied: self.committed_catalog}
        """The committed catalog as of each committed entry, by op id."""
        self.violation: Violation | None = None
        self.healed = False
        self.on_committed: Callable[[Catalog, Committed], None] = lambda before, entry: None
        self.on_reported: Callable[[Heartbeat], None] = lambda heartbeat: None
        self.configs: list[tuple[int, TabletConfig]] = []
        """The committed configs of the masters, each with the time at which it was committed."""
        self.on_told: ToldMasters = lambda name, told, before, after: None

    def found(self, members: Sequence[Member]) -> None:
        """Begin with these masters, whose config is in no entry."""
        self.configs = [(0, TabletConfig(op_id=ZERO, members=tuple(members)))]

    @property
    def masters_config(self) -> TabletConfig:
        """The newest committed config of the masters."""
        return self.configs[-1][1]

    def commit(self, entry: Committed) -> None:
        """Add a committed entry, update the committed catalog, and report the entry."""
        before = self.committed_catalog
        self.log.append(entry)
        self.committed_catalog = before.apply(entry.batch, entry.op_id)
        self.catalogs[entry.op_id] = self.committed_catalog
        if entry.config is not None:
            self.configs.append((self.scheduler.now_us, entry.config))
        self.scheduler.note(f"commit {entry.op_id}")
        self.on_committed(before, entry)

    def report(self, invariant: str, detail: str) -> None:
        """Record a violation, unless there is an earlier one."""
        if self.violation is None:
            self.violation = Violation(invariant=invariant, detail=detail, at_us=self.scheduler.now_us)
