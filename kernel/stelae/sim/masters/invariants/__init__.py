"""The invariants of the masters, one file each."""

from __future__ import annotations

from stelae.sim.masters.invariants.acknowledged_changes import AcknowledgedChanges
from stelae.sim.masters.invariants.base import MastersInvariant
from stelae.sim.masters.invariants.bounded_staleness import BoundedStaleness
from stelae.sim.masters.invariants.catalog_follows_log import CatalogFollowsLog
from stelae.sim.masters.invariants.forward_only import ForwardOnly
from stelae.sim.masters.invariants.majority_stays_healthy import MajorityStaysHealthy
from stelae.sim.masters.invariants.never_half_visible import NeverHalfVisible
from stelae.sim.masters.invariants.newest_masters import NewestMasters
from stelae.sim.masters.invariants.newest_reports import NewestReports
from stelae.sim.masters.invariants.no_wrong_deletion import NoWrongDeletion
from stelae.sim.masters.invariants.one_cluster import OneCluster
from stelae.sim.masters.invariants.removed_masters import RemovedMasters
from stelae.sim.masters.invariants.schema_versions_in_order import SchemaVersionsInOrder
from stelae.sim.masters.invariants.unknown_tablets_untouched import UnknownTabletsUntouched

INVARIANTS: tuple[type[MastersInvariant], ...] = (
    NewestReports,
    CatalogFollowsLog,
    AcknowledgedChanges,
    ForwardOnly,
    SchemaVersionsInOrder,
    NeverHalfVisible,
    UnknownTabletsUntouched,
    NoWrongDeletion,
    MajorityStaysHealthy,
    OneCluster,
    NewestMasters,
    RemovedMasters,
    BoundedStaleness,
)
"""The invariants in the order in which they judge a fact: causes before their consequences."""

__all__ = ["INVARIANTS", "MastersInvariant"]
