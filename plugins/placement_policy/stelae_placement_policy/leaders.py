"""The balance of leaders: transfers that bring every node closer to its share of them.

The share of a node is the sum, over its voters, of an equal part of each tablet's leadership. So large servers lead
more. A transfer copies nothing, but it stops the tablet's writes for a moment. So it must close a gap, like a move."""

from __future__ import annotations

from typing import NamedTuple

from stelae_placement_policy.numbered_snapshot import NumberedSnapshot, NumberedTablet
from stelae_placement_policy.reasons import Reasons


class LeaderTransfer(NamedTuple):
    """The transfer of a tablet's leadership to another node, and the reason."""

    tablet: NumberedTablet
    target: int
    reason: str


class Leaders:
    """Chooses transfers among the complete tablets that no other action of the plan changes."""

    def __init__(self, cluster: NumberedSnapshot, reasons: Reasons, touched: set[str]) -> None:
        self._cluster = cluster
        self._reasons = reasons
        self._touched = touched
        self._inverse = [1 / share if share else 0.0 for share in cluster.leader_share]

    def plan(self) -> list[LeaderTransfer]:
        """Return the transfers, and count them as done. Nodes that lead most above their share come first."""
        cluster, limit = self._cluster, self._cluster.config.transfers_max
        led: dict[int, list[NumberedTablet]] = {}
        for tablet in cluster.complete:
            if tablet.tablet_id not in self._touched:
                led.setdefault(tablet.leader, []).append(tablet)
        found: list[LeaderTransfer] = []
        for source in sorted(led, key=lambda node: (-self._rate(node), node)):
            for tablet in led[source]:
                if len(found) >= limit:
                    return found
                target = self._better(tablet, source)
                if target >= 0:
                    found.append(LeaderTransfer(tablet, target, self._reasons.lead(source, target)))
                    cluster.leaders[source] -= 1
                    cluster.leaders[target] += 1
        return found

    def _rate(self, node: int) -> float:
        return self._cluster.leaders[node] * self._inverse[node]

    def _better(self, tablet: NumberedTablet, source: int) -> int:
        """Return the voter that leads least, if the gap to it is worth a transfer, else -1."""
        cluster, best = self._cluster, -1
        closed = cluster.config.leader_imbalance_tolerated
        for node in tablet.members:
            if node == source or cluster.hot[node]:
                continue
            gap = self._rate(source) - self._rate(node) - (self._inverse[source] + self._inverse[node]) / 2
            if gap > closed:
                best, closed = node, gap
        return best
