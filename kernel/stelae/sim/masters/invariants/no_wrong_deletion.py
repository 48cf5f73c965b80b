"""No replica with a record is wrongly deleted."""

from __future__ import annotations

from typing import ClassVar

from stelae.protocol.actions import DeleteReplica
from stelae.sim.masters.groups import ModelReplica, TabletGroup
from stelae.sim.masters.invariants.base import MastersInvariant
from stelae.sim.masters.tserver import SimServer
from stelae.spi.consensus import MemberType
from stelae.spi.ids import ZERO, NodeId


class NoWrongDeletion(MastersInvariant):
    """A replica is deleted only if the committed catalog says that its tablet is gone for ever, or if it is no member.

    A member of a config that is pending counts as one. The exception is what an eviction left over on a server that is
    now being added again, and that knows nothing of it yet: that is what the eviction was to delete."""

    name: ClassVar[str] = "no_wrong_deletion"
    source: ClassVar[str] = "issue: no replica with a record is wrongly deleted; durability.md rule 27; appendix A"

    def on_deleted(self, server: SimServer, action: DeleteReplica) -> None:
        """Judge by the truth, which no master knows."""
        record = self.world.truth.tablets.get(action.tablet_id)
        if record is None or record.terminal:
            return  # Of a tablet that nobody has a record of, another invariant speaks.
        group = self.groups.groups.get(action.tablet_id)
        if group is None or self._belongs(group, server.node_id, server.disk[action.tablet_id]):
            members = [] if group is None else sorted(group.members())
            self.fail(
                f"{server.place.name} deletes its replica of {action.tablet_id}, which is {record.state} "
                f"with members {members}, by {action.fence}"
            )

    def _belongs(self, group: TabletGroup, node_id: NodeId, replica: ModelReplica) -> bool:
        """Voters belong. A newcomer does unless it is a leftover: older than the newest config that did without it."""
        member = group.config.member(node_id)
        if member is not None and member.member_type is MemberType.VOTER:
            return True
        return node_id in group.members() and replica.newest >= group.without.get(node_id, ZERO)
