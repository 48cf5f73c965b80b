"""How far a tablet server is with giving away its replicas, or only its leaderships, so that it can be stopped.

That follows from the cluster as the masters' policy sees it. No input or output."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.client.counted import counted
from stelae.spi.consensus import Role
from stelae.spi.ids import NodeId
from stelae.spi.members import PROMOTED, MemberType
from stelae.spi.policy import NodeHealth, PolicySnapshot, TabletView


@dataclass(frozen=True, slots=True)
class Retirement:
    """The replicas that a server still has.

    Attributes:
        replicas: their number.
        size_bytes: their size, as last reported.
        moving: the number of them whose replacement is being created or copied.
        others: the number of other servers that live, and may take replicas.
        needed: the greatest number of replicas that one of its tablets is to have, each on a server of its own.
    """

    replicas: int
    size_bytes: int
    moving: int
    others: int
    needed: int = 0

    def __str__(self) -> str:
        left = "1 replica is left" if self.replicas == 1 else f"{self.replicas} replicas are left"
        return f"{left}, {self.moving} of them on the move"


def retirement_of(node_id: NodeId, snapshot: PolicySnapshot) -> Retirement:
    """Return how far a server has given its replicas away."""
    held = [view for view in snapshot.tablets.values() if _size_on(view, node_id) is not None]
    nodes = snapshot.nodes.values()
    return Retirement(
        replicas=len(held),
        size_bytes=sum(_size_on(view, node_id) or 0 for view in held),
        moving=sum(any(replica.member_type in PROMOTED for replica in view.replicas) for view in held),
        others=sum(node.node_id != node_id and node.health is NodeHealth.LIVE for node in nodes),
        needed=max((view.replication_factor for view in held), default=0),
    )


def _size_on(view: TabletView, node_id: NodeId) -> int | None:
    return next((replica.size_bytes for replica in view.replicas if replica.node_id == node_id), None)


@dataclass(frozen=True, slots=True)
class Leaderships:
    """The tablets that a server leads.

    Attributes:
        left: the number of those that another replica could lead.
        alone: the number of those of which it has the only full voter. They are offline while it is down.
    """

    left: int
    alone: int

    def __str__(self) -> str:
        return f"it leads {counted(self.left, 'tablet')} that other replicas could lead"


def leaderships_of(node_id: NodeId, snapshot: PolicySnapshot) -> Leaderships:
    """Return which tablets a server leads."""
    led = [v for v in snapshot.tablets.values() for r in v.replicas if r.node_id == node_id and r.role is Role.LEADER]
    alone = sum(sum(one.member_type is MemberType.VOTER for one in view.replicas) == 1 for view in led)
    return Leaderships(left=len(led) - alone, alone=alone)
