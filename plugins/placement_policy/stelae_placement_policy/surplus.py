"""The choice of the member that is removed if there are too many. It is made anew from each snapshot.

A plan keeps no memory, and a config does not say why a member was added. So one question decides: would this member be
added now if it were not there? A spare for a server that came back is not needed, and is removed. The copy that a move
began closes a gap and stays, until its promotion makes one voter too many. Then the costs by which the move was chosen
also decide which voter is removed. So no plan undoes another one."""

from __future__ import annotations

from collections.abc import Sequence

from stelae_placement_policy.ledger import Ledger
from stelae_placement_policy.numbered_snapshot import NumberedSnapshot, NumberedTablet
from stelae_placement_policy.topology import Topology

KEEP_RATIO = 0.5
"""A copy stays while its gap is above this part of ``imbalance_tolerated``: sizes change while a tablet is copied."""


def member_to_remove(
    topology: Topology, ledger: Ledger, tablet: NumberedTablet, members: Sequence[int], among: Sequence[int]
) -> int:
    """Return the member whose removal leaves the best locations; of equal ones the one whose node is relieved most.

    Of equal ones again, a member that does not lead comes first."""

    def rank(node: int) -> tuple[int, float, bool, int]:
        rest = [other for other in members if other != node]
        return topology.cost(rest), -ledger.relief(node, tablet.size), node == tablet.leader, node

    return min(among, key=rank)


def replaced_by(topology: Topology, ledger: Ledger, members: Sequence[int], size: int, new: int, least: float) -> int:
    """Return the member that ``new`` should replace, or -1.

    It should if the locations of the tablet get better, or stay equal and the gap is above ``least``. The ledger does
    not have the new replica yet."""
    now, best = topology.cost(members), None
    for node in members:
        cost = topology.cost([new, *(other for other in members if other != node)])
        rank = (cost, -ledger.gap(size, node, new), node)
        if best is None or rank < best:
            best = rank
    if best is None:
        return -1
    cost, closed, node = best
    return node if cost < now or (cost == now and -closed > least) else -1


def keeps_copy(cluster: NumberedSnapshot, ledger: Ledger, members: Sequence[int], size: int, new: int) -> bool:
    """Return true if a copy under way stays. Then the new replica replaces the old one in the ledger."""
    least = cluster.config.imbalance_tolerated * KEEP_RATIO
    old = replaced_by(cluster.topology, ledger, members, size, new, least)
    if old >= 0:
        ledger.restore(new, size)
        ledger.drop(old, size)
    return old >= 0
