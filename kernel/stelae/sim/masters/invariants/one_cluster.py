"""Two clusters stay apart: no master of the other one becomes a member, and no server or client follows it."""

from __future__ import annotations

from typing import ClassVar

from stelae.server.master.core.catalog import Catalog
from stelae.sim.masters.invariants.base import MastersInvariant
from stelae.sim.masters.world import FOREIGN, Committed, master_node


class OneCluster(MastersInvariant):
    """No config of the masters lists a master of another cluster, whatever id that cluster has.

    The logs of both begin alike, so entries of the one would be taken for those of the other. Servers and clients
    report by themselves if they follow masters of the other cluster, and the run reports a server that counts there."""

    name: ClassVar[str] = "one_cluster"
    source: ClassVar[str] = "issue: two clusters mixed up are refused or harmless; ADR 80"

    def on_committed(self, before: Catalog, entry: Committed) -> None:
        """Check the masters of a new config, and the cluster on record."""
        if entry.config is not None and entry.config.member(master_node(FOREIGN)) is not None:
            self.fail(f"config {entry.config.op_id} has a master of another cluster")
        cluster, now = before.cluster, self.world.committed_catalog.cluster
        if cluster is not None and now != cluster:
            self.fail(f"{entry.op_id} puts another cluster on record")
