"""Tablets without a record in the catalog are never changed."""

from __future__ import annotations

from typing import ClassVar

from stelae.protocol.actions import DeleteReplica, ServerAction
from stelae.protocol.master_heartbeats import ReportedDataState
from stelae.sim.masters.invariants.base import MastersInvariant
from stelae.sim.masters.master import SimMaster
from stelae.sim.masters.tserver import SimServer


class UnknownTabletsUntouched(MastersInvariant):
    """No action names a tablet without a record in the committed catalog."""

    name: ClassVar[str] = "unknown_tablets_untouched"
    source: ClassVar[str] = "issue: unknown tablets are never touched; behaviours.md M4; appendix A, case 1"

    def on_sent(self, master: SimMaster, action: ServerAction) -> None:
        """Check that the tablet of an action has a record."""
        if action.tablet_id not in self.world.committed_catalog.tablets:
            self.fail(f"{master.endpoint.name} sends {type(action).__name__} for the unknown tablet {action.tablet_id}")

    def on_deleted(self, server: SimServer, action: DeleteReplica) -> None:
        """Check that a deleted tablet has a record."""
        if action.tablet_id not in self.world.committed_catalog.tablets:
            self.fail(f"{server.endpoint.name} deletes the unknown tablet {action.tablet_id}")

    def at_end(self, masters: list[SimMaster], servers: list[SimServer]) -> None:
        """Check that the foreign tablet of each server still exists."""
        for server in servers:
            if server.disk[server.foreign].data_state is not ReportedDataState.READY:
                self.fail(f"{server.endpoint.name} has lost {server.foreign}")
