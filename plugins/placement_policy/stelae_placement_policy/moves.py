"""Moves: replicas that should be on another node although nothing is wrong with them.

First come replicas whose tablet could be spread over more locations, then replicas whose move closes a gap between two
nodes. A move begins with the addition of a member. Later plans decide on its promotion and on the eviction that
follows, from the snapshots that they get. So a plan begins only moves that later plans would keep. It tries them on
copies of its ledger. Nodes that take part in a change under way get no new move, because the end of that change is not
known yet."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from stelae_placement_policy.ledger import Ledger
from stelae_placement_policy.node_picker import Picker
from stelae_placement_policy.numbered_snapshot import NumberedSnapshot, NumberedTablet
from stelae_placement_policy.reasons import Reasons
from stelae_placement_policy.surplus import keeps_copy, member_to_remove
from stelae_placement_policy.topology import PAIRS_BITS

_TABLETS_TRIED_MAX = 32_000
"""Most tablets, of all nodes together, that a plan checks for one that can move."""
_TARGETS_PER_LEVEL = 4
"""Most nodes that are checked as targets, at each level of the source's location and in the whole cluster."""
_UNPLACEABLE_MAX = 256
"""Most tablets that are checked for a better location and have none, before the plan goes on."""


class Move(NamedTuple):
    """One move that a plan begins: the tablet, the two nodes, and the reason."""

    tablet: NumberedTablet
    source: int
    target: int
    reason: str


class Moves:
    """Chooses moves for the complete tablets. ``busy`` are nodes that take part in no new move."""

    def __init__(
        self, cluster: NumberedSnapshot, picker: Picker, reasons: Reasons, busy: set[int], start: float
    ) -> None:
        self._cluster = cluster
        self._picker = picker
        self._reasons = reasons
        self._busy = busy
        self._start = start
        """From 0 to 1: where the search in the lists of tablets begins, so that each tablet is checked in some plan."""
        self._ledger = cluster.ledger
        self._chosen: list[Move] = []
        self._touched: set[str] = set()

    def plan(self) -> list[Move]:
        """Return the moves to begin, and enter them into the ledger as if they were completed."""
        if not self._cluster.config.moves_max:
            return []
        before = self._ledger.copy()
        self._move_apart()
        self._balance()
        moves = self._moves_that_later_plans_keep(before)
        for move in self._chosen:
            if move not in moves:
                self._ledger.restore(move.source, move.tablet.size)
                self._ledger.drop(move.target, move.tablet.size)
        return moves

    def _begin(self, tablet: NumberedTablet, source: int, target: int, reason: str) -> None:
        self._chosen.append(Move(tablet, source, target, reason))
        self._touched.add(tablet.tablet_id)
        self._ledger.add(target, tablet.size)
        self._ledger.drop(source, tablet.size)
        self._ledger.arrive(target, tablet.size)

    def _full(self) -> bool:
        return len(self._chosen) >= self._cluster.config.moves_max

    # -- locations -----------------------------------------------------------------------------------

    def _move_apart(self) -> None:
        topology, tablets = self._cluster.topology, self._cluster.complete
        first, without_better = int(self._start * len(tablets)), 0
        for at in range(len(tablets)):
            tablet = tablets[at - first]
            cost = topology.cost(tablet.members)
            if not cost or cost <= topology.attainable(len(tablet.members)):
                continue
            if not self._busy.isdisjoint(tablet.members):
                continue
            found = self._better_location(tablet, cost)
            if found is None:
                without_better += 1
            else:
                source, target, new_cost = found
                pairs = _first_difference(cost, new_cost, topology.levels)
                self._begin(tablet, source, target, self._reasons.apart(source, target, pairs))
            if self._full() or without_better >= _UNPLACEABLE_MAX:
                break

    def _better_location(self, tablet: NumberedTablet, cost: int) -> tuple[int, int, int] | None:
        """Return the member to replace, the node that replaces it, and the lower cost; ``None``: nothing is better.

        If the best node has no slot now, the tablet waits for it. It is not moved for balance until then, because it
        would have to move again."""
        best = self._replacement(tablet, tablet.shunned, copied=False)
        if best is None or best[2] >= cost:
            return None
        found = self._replacement(tablet, self._busy.union(tablet.shunned), copied=True)
        if found is None or found[2] != best[2]:
            self._touched.add(tablet.tablet_id)
            return None
        return found

    def _replacement(
        self, tablet: NumberedTablet, barred: Collection[int], *, copied: bool
    ) -> tuple[int, int, int] | None:
        topology, best = self._cluster.topology, None
        for node in tablet.members:
            rest = [other for other in tablet.members if other != node]
            target = self._picker.pick(tablet.size, rest, barred, copied=copied, cool=True)
            if target >= 0:
                rank = (topology.cost([*rest, target]), -self._ledger.relief(node, tablet.size), node, target)
                best = rank if best is None else min(best, rank)
        return None if best is None else (best[2], best[3], best[0])

    # -- balance -------------------------------------------------------------------------------------

    def _balance(self) -> None:
        cluster, ledger = self._cluster, self._ledger
        idle = [n for n, live in enumerate(cluster.live) if live and n not in self._busy]
        idle.sort(key=lambda node: (ledger.score[node], node))
        targets = self._targets(idle)
        if len(idle) < 2 or not targets or not self._uneven(idle):
            return
        tablets_of = self._tablets_of(idle)
        over: list[int] = []
        under: list[int] = []
        for node in reversed(idle):
            (over if max(ledger.by_count[node], ledger.by_bytes[node]) > 1 else under).append(node)
        self._move_away_from_all(over, tablets_of, targets)
        if not self._chosen and not self._busy:
            # A node below its share gives replicas away only if nothing else moves, because it may have to take more.
            self._move_away_from_all(under, tablets_of, targets)

    def _move_away_from_all(
        self, sources: list[int], tablets_of: dict[int, list[NumberedTablet]], targets: dict[int, list[int]]
    ) -> None:
        tries = _TABLETS_TRIED_MAX // max(1, len(sources))
        for source in sources:
            for _ in range(self._cluster.config.copies_per_node_max):
                if self._full() or not self._move_away(source, tablets_of[source], targets, tries):
                    break

    def _uneven(self, nodes: list[int]) -> bool:
        """Return true if two nodes differ by more than is tolerated, in replicas or in bytes."""
        for fullness in (self._ledger.by_count, self._ledger.by_bytes):
            values = [fullness[node] for node in nodes]
            if max(values) - min(values) > self._cluster.config.imbalance_tolerated:
                return True
        return False

    def _targets(self, idle: list[int]) -> dict[int, list[int]]:
        """Return for each domain its nodes that can take a replica, the emptiest first."""
        found: dict[int, list[int]] = {}
        paths, root = self._cluster.topology.paths, self._cluster.topology.root.number
        for node in idle:
            if self._picker.fits(node, 0, (), True, True):
                for domain in (root, *paths[node]):
                    found.setdefault(domain, []).append(node)
        return found

    def _tablets_of(self, idle: list[int]) -> dict[int, list[NumberedTablet]]:
        """Return the tablets that each node could give away: those without a busy member."""
        found: dict[int, list[NumberedTablet]] = {node: [] for node in idle}
        for tablet in self._cluster.complete:
            if not self._busy or self._busy.isdisjoint(tablet.members):
                for node in tablet.members:
                    found[node].append(tablet)
        return found

    def _move_away(self, source: int, tablets: list[NumberedTablet], targets: dict[int, list[int]], tries: int) -> bool:
        """Begin one move away from a node, if one of its tablets can move. Returns true if it did."""
        near = list(self._near(source, targets))
        if not near:
            return False
        least = self._cluster.config.imbalance_tolerated
        first = int(self._start * len(tablets))
        for at in range(min(len(tablets), tries)):
            tablet = tablets[at - first]
            if tablet.tablet_id in self._touched:
                continue
            target, closed = self._best_target(tablet, source, near, least)
            if target >= 0:
                self._begin(tablet, source, target, self._reasons.move(source, target, closed))
                return True
        return False

    def _near(self, source: int, targets: dict[int, list[int]]) -> Iterator[int]:
        """Yield the nodes to try as targets, from the whole cluster and from each domain of the source, each once."""
        seen = {source}
        topology, ledger, config = self._cluster.topology, self._ledger, self._cluster.config
        count, size = ledger.by_count[source] - config.imbalance_tolerated, ledger.by_bytes[source]
        size -= config.imbalance_tolerated
        for domain in (topology.root.number, *topology.paths[source]):
            left = _TARGETS_PER_LEVEL
            for node in targets.get(domain, ()):
                if count <= ledger.by_count[node] and size <= ledger.by_bytes[node]:
                    continue
                if node not in seen and ledger.has_slot(node):
                    seen.add(node)
                    yield node
                    left -= 1
                if not left:
                    break

    def _best_target(self, tablet: NumberedTablet, source: int, near: list[int], least: float) -> tuple[int, float]:
        topology, ledger = self._cluster.topology, self._ledger
        best, closed, cost = -1, least, -1
        for node in near:
            gap = ledger.gap(tablet.size, source, node)
            if gap <= closed or not self._picker.fits(node, tablet.size, tablet.shunned, True, True):
                continue
            cost = topology.cost(tablet.members) if cost < 0 else cost
            rest = [node, *(other for other in tablet.members if other != source)]
            if topology.cost(rest) <= cost:
                best, closed = node, gap
        return best, closed

    # -- what later plans will keep -------------------------------------------------------------------

    def _moves_that_later_plans_keep(self, before: Ledger) -> list[Move]:
        """Leave out moves until later plans would keep every one that is left.

        That is tried in the order in which later plans decide: while all are copied, and when all are promoted."""
        cluster, moves = self._cluster, sorted(self._chosen, key=lambda move: move.tablet.tablet_id)
        while moves:
            copying, promoted = before.copy(), before.copy()
            for move in moves:
                promoted.add(move.target, move.tablet.size)
            keep = []
            for move in moves:
                tablet, target = move.tablet, move.target
                members = [*tablet.members, target]
                old = member_to_remove(cluster.topology, promoted, tablet, members, members)
                promoted.drop(old, tablet.size)
                if keeps_copy(cluster, copying, tablet.members, tablet.size, target) and old != target:
                    keep.append(move)
            if len(keep) == len(moves):
                break
            moves = keep
        return moves


def _first_difference(before: int, after: int, levels: int) -> tuple[int, int]:
    """Return the pairs of two costs at the coarsest level at which they differ."""
    mask = (1 << PAIRS_BITS) - 1
    for level in reversed(range(levels)):
        pairs = (before >> level * PAIRS_BITS & mask, after >> level * PAIRS_BITS & mask)
        if pairs[0] != pairs[1]:
            return pairs
    return 0, 0
