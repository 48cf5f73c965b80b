"""The choice of a node for one replica: where the tablet has the fewest replicas, and there the emptier of two nodes.

The choice goes down the tree of locations. At every level, domains without a replica of the tablet come first, then
those with the fewest. Of the remaining nodes, some are drawn at random by their weight, and the emptiest of these gets
the replica. To take the emptiest of all would spread replicas a little more evenly, but would give every replica of a
new table to the server that joined last."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Container

from stelae_placement_policy.numbered_snapshot import NumberedSnapshot
from stelae_placement_policy.topology import Domain

_DRAWS_MAX = 12
"""Most random draws in a domain before all of its nodes are checked."""


class Picker:
    """Picks live nodes. The ledger of the snapshot says how full each is with the decisions so far."""

    def __init__(self, cluster: NumberedSnapshot, rng: random.Random) -> None:
        self.topology = cluster.topology
        self.score = cluster.ledger.score
        self.room = cluster.ledger.room
        self.has_slot = cluster.ledger.has_slot
        self.hot = cluster.hot
        self.choices = cluster.config.choices
        self.random = rng.random

    def pick(self, size: int, near: list[int], barred: Container[int], *, copied: bool, cool: bool = False) -> int:
        """Return a node for a replica of ``size`` bytes, or -1.

        Args:
            near: the nodes of the replicas from which it should be apart.
            barred: nodes that must not be picked, such as those of members.
            copied: whether the replica arrives as a copy, for which the node needs a free slot.
            cool: whether nodes under high load must not be picked, too."""
        pick = _Pick(self, size, barred, copied, cool)
        return pick.answer(self.topology.root, self.topology.counts(near))

    def fits(self, node: int, size: int, barred: Container[int], copied: bool, cool: bool) -> bool:
        """Return true if a live node can take a replica now: it has disk space and a slot, and is not barred."""
        return not (
            node in barred
            or self.room[node] < size
            or self.room[node] <= 0
            or (copied and not self.has_slot(node))
            or (cool and self.hot[node])
        )


class _Pick:
    """One pick."""

    __slots__ = ("_barred", "_cool", "_copied", "_picker", "_size")

    def __init__(self, picker: Picker, size: int, barred: Container[int], copied: bool, cool: bool) -> None:
        self._picker = picker
        self._size = size
        self._barred = barred
        self._copied = copied
        self._cool = cool

    def answer(self, domain: Domain, taken: dict[int, int]) -> int:
        """Pick a node in a domain: in an inner domain without replicas of the tablet, else in those with the fewest.

        ``taken`` is the number of the tablet's replicas in each domain. Returns -1 if no node fits."""
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
        """Return the emptiest of a few drawn nodes of a domain. Inner domains with replicas are left out."""
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
