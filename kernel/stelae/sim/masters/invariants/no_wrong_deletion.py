"""No replica of a tablet with a record is wrongly deleted."""

from __future__ import annotations

from typing import ClassVar

from stelae.protocol.actions import DeleteReplica
from stelae.sim.masters.invariants.base import MastersInvariant
from stelae.sim.masters.tablet_groups import ModelReplica, TabletGroup
from stelae.sim.masters.tserver import SimServer
from stelae.spi.ids import ZERO, NodeId
from stelae.spi.members import MemberType


class NoWrongDeletion(MastersInvariant):
    """A replica is deleted only if its tablet is deleted in the committed catalog, or if it is not a member.

    A member of a pending config counts as a member. The exception is a replica that remains from an eviction, on a
    server that is being added again and does not know that yet: the eviction was meant to delete that replica."""

    name: ClassVar[str] = "no_wrong_deletion"
    source: ClassVar[str] = "issue: no replica with a record is wrongly deleted; durability.md rule 27; appendix A"

    def on_deleted(self, server: SimServer, action: DeleteReplica) -> None:
        """Check a deletion against the committed catalog and the state of the group."""
        record = self.world.committed_catalog.tablets.get(action.tablet_id)
        if record is None or record.terminal:
            return  # Another invariant judges tablets without a record.
        group = self.groups.groups.get(action.tablet_id)
        if group is None or self._belongs(group, server.node_id, server.disk[action.tablet_id]):
            members = [] if group is None else sorted(group.members())
            self.fail(
                f"{server.endpoint.name} deletes its replica of {action.tablet_id}, which is {record.state} "
                f"with members {members}, by {action.fence}"
            )

    def _belongs(self, group: TabletGroup, node_id: NodeId, replica: ModelReplica) -> bool:
        """Return true if the replica is a member: a voter, or a new member that is not a remainder of an eviction.

        A remainder is older than the newest config that did not contain the server."""
        member = group.config.member(node_id)
        if member is not None and member.member_type is MemberType.VOTER:
            return True
        return node_id in group.members() and replica.newest >= group.removed_by.get(node_id, ZERO)
