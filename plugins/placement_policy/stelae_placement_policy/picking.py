"""Picking a node for one replica: where the tablet has least in common, and there the emptier of two.

Down the tree of locations: domains that the tablet is not in yet come first, then those it is in least, at every
level. Among the nodes that are left, some are drawn by their weight and the emptiest of them is taken. The emptiest of
all would be a little evener, and would give every replica of a new table to the server that joined last."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Container

from stelae_placement_policy.survey import Survey
from stelae_placement_policy.topology import Domain

_DRAWS_MAX = 12
"""Draws before the nodes of a domain are looked through one by one."""


class Picker:
    """Picks among the live nodes of a survey; its ledger says how full they are by now."""

    def __init__(self, survey: Survey, rng: random.Random) -> None:
        self.topology = survey.topology
        self.score = survey.ledger.score
        self.room = survey.ledger.room
        self.arriving = survey.ledger.arriving
        self.hot = survey.hot
        self.copies_max = survey.config.copies_per_node_max
        self.choices = survey.config.choices
        self.random = rng.random

    def pick(self, size: int, near: list[int], barred: Container[int], *, copied: bool, cool: bool = False) -> int:
        """Return a node for a replica of ``size`` bytes, or -1.

        Args:
            near: the nodes of those replicas that it is to be apart from.
            barred: nodes that are out of the question, as every member's is.
            copied: whether it comes as a copy, for which the node needs a free slot.
            cool: whether nodes under high load are out of the question, too."""
        question = _Question(self, size, barred, copied, cool)
        return question.answer(self.topology.root, self.topology.counts(near))

    def fits(self, node: int, size: int, barred: Container[int], copied: bool, cool: bool) -> bool:
        """Whether a live node can take a replica now: disk, a slot, and not out of the question."""
        return not (
            node in barred
            or self.room[node] < size
            or self.room[node] <= 0
            or (copied and self.arriving[node] >= self.copies_max)
            or (cool and self.hot[node])
        )


class _Question:
    """One pick under way."""

    __slots__ = ("_barred", "_cool", "_copied", "_picker", "_size")

    def __init__(self, picker: Picker, size: int, barred: Container[int], copied: bool, cool: bool) -> None:
        self._picker = picker
        self._size = size
        self._barred = barred
        self._copied = copied
        self._cool = cool

    def answer(self, domain: Domain, taken: dict[int, int]) -> int:
        """Pick in a domain: in one below that is not taken, else in those that are taken least."""
        topology = self._picker.topology
        level = domain.level
        if level == topology.levels:
            return self._draw(domain, [], {})
        column = topology.columns[level]
        inner = [number for number in taken if topology.parents[number] == domain.number and topology.reach[number]]
        if domain.children > len(inner) or not inner:
            node = self._draw(domain, column, taken)
            if node >= 0:
                return node
        for count in sorted({taken[number] for number in inner}):
            found = [self.answer(topology.domains[n], taken) for n in inner if taken[n] == count]
            found = [node for node in found if node >= 0]
            if found:
                return min(found, key=lambda node: self._rank(node, taken))
        return -1

    def _rank(self, node: int, taken: dict[int, int]) -> tuple[list[int], float, int]:
        counts = [taken.get(domain, 0) for domain in self._picker.topology.paths[node]]
        return counts, self._picker.score[node], node

    def _draw(self, domain: Domain, column: list[int], taken: dict[int, int]) -> int:
        """The emptiest of a few nodes of a domain, outside of what is taken at the level below."""
        picker, nodes, weights, reach = self._picker, domain.nodes, domain.weights, domain.reach
        fits, size, barred, copied, cool = picker.fits, self._size, self._barred, self._copied, self._cool
        score, draw, best, left = picker.score, picker.random, -1, picker.choices
        for _ in range(_DRAWS_MAX if len(nodes) > left else 0):
            at = bisect(weights, draw() * reach)
            node = nodes[at] if at < len(nodes) else nodes[-1]
            if node == best or (taken and column[node] in taken) or not fits(node, size, barred, copied, cool):
                continue
            if best < 0 or score[node] < score[best]:
                best = node
            left -= 1
            if not left:
                return best
        if best >= 0:
            return best
        free = [node for node in nodes if not (taken and column[node] in taken)]
        fitting = [node for node in free if fits(node, size, barred, copied, cool)]
        return min(fitting, key=lambda node: (score[node], node), default=-1)
