"""Which of too many members goes. It is decided anew from each snapshot, and so that no plan undoes another.

A plan keeps no memory, and a config does not say why a member was added. So one question decides all: would this
member be brought here if it were not here yet? A spare for a server that came back is not needed and goes; the copy
that a move began closes a gap and stays, until its promotion makes one voter too many. Which of these goes follows from
the same costs by which the move was chosen."""

from __future__ import annotations

from collections.abc import Sequence

from stelae_placement_policy.ledger import Ledger
from stelae_placement_policy.survey import Survey, Tablet
from stelae_placement_policy.topology import Topology

KEEPING = 0.5
"""Part of the gap at which moves begin that keeps one going: sizes change while a tablet is copied."""


def victim(topology: Topology, ledger: Ledger, tablet: Tablet, members: Sequence[int], among: Sequence[int]) -> int:
    """Return which of some members costs the tablet most where it is; then the one whose node is relieved most, then
    one that does not lead."""

    def rank(node: int) -> tuple[int, float, bool, int]:
        rest = [other for other in members if other != node]
        return topology.cost(rest), -ledger.relief(node, tablet.size), node == tablet.leader, node

    return min(among, key=rank)


def replaced_by(topology: Topology, ledger: Ledger, members: Sequence[int], size: int, new: int, least: float) -> int:
    """Return the member that ``new`` would be worth bringing in for, or -1.

    It is when the locations of the tablet get better; or stay as good, and the gap is above ``least``. The ledger
    does not have the new replica yet."""
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


def keeps(survey: Survey, ledger: Ledger, members: Sequence[int], size: int, new: int) -> bool:
    """Whether a copy under way stays; if so, the ledger has the new replica, and not the one it replaces."""
    least = survey.config.imbalance_tolerated * KEEPING
    old = replaced_by(survey.topology, ledger, members, size, new, least)
    if old >= 0:
        ledger.restore(new, size)
        ledger.drop(old, size)
    return old >= 0
