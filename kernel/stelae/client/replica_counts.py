"""How far the masters are with giving the tablets of a table the number of replicas that it is to have.

That follows from the cluster as the masters' policy sees it. No input or output."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from stelae.client.counted import counted
from stelae.spi.ids import TabletId
from stelae.spi.members import PROMOTED, MemberType
from stelae.spi.policy import NodeHealth, PolicySnapshot, TabletView


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """The tablets of a table that have the wanted number of healthy replicas, and those that do not.

    Attributes:
        wanted: the number of replicas that each tablet is to have, without those that an operator has pinned.
        tablets: the number of tablets.
        done: the number of tablets with as many healthy voters as wanted, and with no change of members under way.
        joining: the number of replicas that are being created or copied.
        servers: the number of servers that live.
    """

    wanted: int
    tablets: int
    done: int
    joining: int
    servers: int

    @property
    def is_done(self) -> bool:
        """Whether all tablets have the wanted replicas."""
        return self.done == self.tablets

    def __str__(self) -> str:
        return f"{self.done} of {counted(self.tablets, 'tablet')} with {counted(self.wanted, 'replica')}"

    @property
    def why_impossible(self) -> str:
        """Why the masters cannot go on at the moment, and what to do; empty if enough servers live."""
        if self.servers >= self.wanted:
            return ""
        live = "1 tablet server is live" if self.servers == 1 else f"{self.servers} tablet servers are live"
        return f"{live}, and each replica needs a server of its own; add or start one"


def replica_counts(tablets: Collection[TabletId], wanted: int, snapshot: PolicySnapshot) -> ReplicaCounts:
    """Return how far the tablets of a table are. One that the masters do not show yet is not done."""
    views = [view for tablet in tablets if (view := snapshot.tablets.get(tablet)) is not None]
    return ReplicaCounts(
        wanted=wanted,
        tablets=len(tablets),
        done=sum(_is_done(view, wanted) for view in views),
        joining=sum(one.copying or one.member_type in PROMOTED for view in views for one in view.replicas),
        servers=sum(node.health is NodeHealth.LIVE for node in snapshot.nodes.values()),
    )


def _is_done(view: TabletView, wanted: int) -> bool:
    """Return whether a tablet has what it is to have. A member in whose place another comes is to leave."""
    if view.change_pending or view.replication_factor != wanted:
        return False
    voters = [one for one in view.replicas if one.member_type is MemberType.VOTER]
    leaving = {one.replaces for one in view.replicas if one.replaces is not None}
    if any(one.node_id in leaving or one.member_type in PROMOTED for one in view.replicas):
        return False
    pinned = sum(one.pinned and one.replaces is None for one in voters)
    return len(voters) == wanted + pinned and all(one.healthy and not one.copying for one in voters)
