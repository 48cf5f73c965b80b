"""The shared state of a masters run, and the committed log and catalog, which only the invariants may use."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stelae.protocol.master_heartbeats import Heartbeat
from stelae.server.master.core.batches import CatalogBatch
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.settings import MasterSettings
from stelae.sim.coverage import Coverage
from stelae.sim.invariants.base import Violation
from stelae.sim.masters.network import MastersNetwork
from stelae.sim.scheduler import Scheduler
from stelae.spi.ids import ClusterId, NodeId, OpId
from stelae.spi.members import Member

CLUSTER = ClusterId("simulated")

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
    """One committed entry of the log. ``batch`` is ``None`` for an entry without records."""

    op_id: OpId
    batch: CatalogBatch | None


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

    def commit(self, entry: Committed) -> None:
        """Add a committed entry, update the committed catalog, and report the entry."""
        before = self.committed_catalog
        self.log.append(entry)
        self.committed_catalog = before.apply(entry.batch, entry.op_id)
        self.catalogs[entry.op_id] = self.committed_catalog
        self.scheduler.note(f"commit {entry.op_id}")
        self.on_committed(before, entry)

    def report(self, invariant: str, detail: str) -> None:
        """Record a violation, unless there is an earlier one."""
        if self.violation is None:
            self.violation = Violation(invariant=invariant, detail=detail, at_us=self.scheduler.now_us)
