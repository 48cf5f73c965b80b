"""The catalog of every master is the one that the log of the system tablet produces up to its applied entry."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.masters.groups import Groups
from stelae.sim.masters.invariants.base import MastersInvariant
from stelae.sim.masters.master import SimMaster
from stelae.sim.masters.world import MastersWorld
from stelae.spi.ids import OpId


class CatalogFollowsLog(MastersInvariant):
    """After each step of a master, its catalog has exactly the records that the entries up to ``applied`` produce.

    This includes the first step after a restart."""

    name: ClassVar[str] = "catalog_follows_log"
    source: ClassVar[str] = "master_core, what its driver promises, 2; Raft 5.4, state machine safety"

    def __init__(self, world: MastersWorld, groups: Groups) -> None:
        super().__init__(world, groups)
        self._judged: dict[tuple[str, int], OpId] = {}

    def on_stepped(self, master: SimMaster) -> None:
        """Compare the master's catalog with the committed one, once for each applied entry."""
        catalog, run = master.core.catalog, (master.place.name, master.epoch)
        if self._judged.get(run) == catalog.applied:
            return
        self._judged[run] = catalog.applied
        truth = self.world.truths.get(catalog.applied)
        if truth is None:
            self.fail(f"{master.place.name} has applied {catalog.applied}, which is not committed")
        elif catalog.records != truth.records:
            differing = sorted(
                "/".join(key)
                for key in catalog.records.keys() | truth.records.keys()
                if catalog.records.get(key) != truth.records.get(key)
            )
            self.fail(
                f"the catalog of {master.place.name} at {catalog.applied} differs from the log in {differing[:5]}"
            )
