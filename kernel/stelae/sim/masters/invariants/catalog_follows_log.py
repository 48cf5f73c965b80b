"""The catalog of every master is the one that the log of the system tablet produces up to its applied entry."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.masters.invariants.base import MastersInvariant
from stelae.sim.masters.master import SimMaster
from stelae.sim.masters.tablet_groups import TabletGroups
from stelae.sim.masters.world import MastersWorld
from stelae.spi.ids import OpId


class CatalogFollowsLog(MastersInvariant):
    """After each step of a master, its catalog has exactly the records that the entries up to ``applied`` produce.

    This includes the first step after a restart."""

    name: ClassVar[str] = "catalog_follows_log"
    source: ClassVar[str] = "master_core, what its driver promises, 2; Raft 5.4, state machine safety"

    def __init__(self, world: MastersWorld, groups: TabletGroups) -> None:
        super().__init__(world, groups)
        self._judged: dict[tuple[str, int], OpId] = {}

    def on_stepped(self, master: SimMaster) -> None:
        """Compare the master's catalog with the committed one, once for each applied entry."""
        catalog, run = master.core.catalog, (master.endpoint.name, master.epoch)
        if self._judged.get(run) == catalog.applied:
            return
        self._judged[run] = catalog.applied
        committed_catalog = self.world.catalogs.get(catalog.applied)
        if committed_catalog is None:
            self.fail(f"{master.endpoint.name} has applied {catalog.applied}, which is not committed")
        elif catalog.records != committed_catalog.records:
            differing = sorted(
                "/".join(key)
                for key in catalog.records.keys() | committed_catalog.records.keys()
                if catalog.records.get(key) != committed_catalog.records.get(key)
            )
            self.fail(
                f"the catalog of {master.endpoint.name} at {catalog.applied} differs from the log in {differing[:5]}"
            )
