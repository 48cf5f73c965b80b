"""No replica with a record is wrongly deleted."""

from __future__ import annotations

from typing import ClassVar

from stelae.server.master.actions import DeleteReplica
from stelae.sim.masters.invariants.base import Invariant
from stelae.sim.masters.tserver import SimServer


class NoWrongDeletion(Invariant):
    """A replica is deleted only if the committed catalog says that its tablet is gone for ever, or if it is a member
    neither of the committed config nor of one that is pending, at the moment it happens."""

    name: ClassVar[str] = "no_wrong_deletion"
    source: ClassVar[str] = "issue: no replica with a record is wrongly deleted; durability.md rule 27; appendix A"

    def on_deleted(self, server: SimServer, action: DeleteReplica) -> None:
        """Judge by the truth, which no master knows."""
        record = self.world.truth.tablets.get(action.tablet_id)
        if record is None or record.terminal:
            return  # Of a tablet that nobody has a record of, another invariant speaks.
        group = self.groups.groups.get(action.tablet_id)
        if group is None or server.node_id in group.members():
            members = [] if group is None else sorted(group.members())
            self.fail(
                f"{server.place.name} deletes its replica of {action.tablet_id}, which is {record.state} "
                f"with members {members}, by {action.fence}"
            )
