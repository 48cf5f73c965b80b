"""Leaders: transfers that give every node its share of them.

A node's share is what it would lead if each tablet led a little from every voter: large servers lead more. A transfer
costs no copy, but stops the tablet's writes for a moment; so it has to close a gap, like a move."""

from __future__ import annotations

from typing import NamedTuple

from stelae_placement_policy.survey import Survey, Tablet
from stelae_placement_policy.words import Words


class Transfer(NamedTuple):
    """Leadership of a tablet that goes to another node, and why."""

    tablet: Tablet
    target: int
    reason: str


class Leaders:
    """Chooses transfers among the whole tablets of a survey that no other action touches."""

    def __init__(self, survey: Survey, words: Words, touched: set[str]) -> None:
        self._survey = survey
        self._words = words
        self._touched = touched
        self._inverse = [1 / share if share else 0.0 for share in survey.leader_share]

    def plan(self) -> list[Transfer]:
        """Return the transfers, of the nodes that lead most above their share first, and count them as done."""
        survey, limit = self._survey, self._survey.config.transfers_max
        led: dict[int, list[Tablet]] = {}
        for tablet in survey.whole:
            if tablet.tablet_id not in self._touched:
                led.setdefault(tablet.leader, []).append(tablet)
        found: list[Transfer] = []
        for source in sorted(led, key=lambda node: (-self._rate(node), node)):
            for tablet in led[source]:
                if len(found) >= limit:
                    return found
                target = self._better(tablet, source)
                if target >= 0:
                    found.append(Transfer(tablet, target, self._words.lead(source, target)))
                    survey.leaders[source] -= 1
                    survey.leaders[target] += 1
        return found

    def _rate(self, node: int) -> float:
        return self._survey.leaders[node] * self._inverse[node]

    def _better(self, tablet: Tablet, source: int) -> int:
        """The voter that leads least, if the gap to it is worth a transfer, or -1."""
        survey, best = self._survey, -1
        closed = survey.config.leader_imbalance_tolerated
        for node in tablet.members:
            if node == source or survey.hot[node]:
                continue
            gap = self._rate(source) - self._rate(node) - (self._inverse[source] + self._inverse[node]) / 2
            if gap > closed:
                best, closed = node, gap
        return best
