"""Moves: replicas that should be elsewhere, although nothing is wrong with them.

First those whose tablet could be spread over more locations, then those that close a gap between two nodes. A move is
the addition of a member; its promotion and the eviction that follows are decided by later plans, from what they see
then. So a plan begins only moves that later ones would keep: it tries them out on copies of its ledger. And it lets
nodes be that take part in a change under way, whose end is not yet known."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from stelae_placement_policy.ledger import Ledger
from stelae_placement_policy.picking import Picker
from stelae_placement_policy.surplus import keeps, victim
from stelae_placement_policy.survey import Survey, Tablet
from stelae_placement_policy.topology import PAIRS_BITS
from stelae_placement_policy.words import Words

_TABLETS_TRIED_MAX = 32_000
"""Tablets that a plan looks at for one that can move, of all nodes together: bounds it where none can."""
_TARGETS_PER_LEVEL = 4
"""Nodes that are looked at as targets, at each level of the source's location and in the whole cluster."""
_UNPLACEABLE_MAX = 256
"""Tablets without a better location that are looked at in vain before a plan goes on."""


class Move(NamedTuple):
    """One move begun: which tablet, from where, to where, and why."""

    tablet: Tablet
    source: int
    target: int
    reason: str


class Moves:
    """Chooses moves for the whole tablets of a survey. ``busy``: nodes that take part in no new move."""

    def __init__(self, survey: Survey, picker: Picker, words: Words, busy: set[int], start: float) -> None:
        self._survey = survey
        self._picker = picker
        self._words = words
        self._busy = busy
        self._start = start
        """From 0 to 1: where in the lists of tablets the search begins, so that each gets its turn."""
        self._ledger = survey.ledger
        self._chosen: list[Move] = []
        self._touched: set[str] = set()

    def plan(self) -> list[Move]:
        """Return the moves to begin, and enter them into the ledger as if they were done."""
        if not self._survey.config.moves_max:
            return []
        before = self._ledger.copy()
        self._move_apart()
        self._balance()
        moves = self._kept_by_later_plans(before)
        for move in self._chosen:
            if move not in moves:
                self._ledger.restore(move.source, move.tablet.size)
                self._ledger.drop(move.target, move.tablet.size)
        return moves

    def _begin(self, tablet: Tablet, source: int, target: int, reason: str) -> None:
        self._chosen.append(Move(tablet, source, target, reason))
        self._touched.add(tablet.tablet_id)
        self._ledger.add(target, tablet.size)
        self._ledger.drop(source, tablet.size)
        self._ledger.arriving[target] += 1

    def _full(self) -> bool:
        return len(self._chosen) >= self._survey.config.moves_max

    # -- locations -----------------------------------------------------------------------------------

    def _move_apart(self) -> None:
        topology, tablets = self._survey.topology, self._survey.whole
        first, in_vain = int(self._start * len(tablets)), 0
        for at in range(len(tablets)):
            tablet = tablets[at - first]
            cost = topology.cost(tablet.members)
            if not cost or cost <= topology.attainable(len(tablet.members)):
                continue
            if not self._busy.isdisjoint(tablet.members):
                continue
            found = self._better_place(tablet, cost)
            if found is None:
                in_vain += 1
            else:
                source, target, new_cost = found
                pairs = _first_difference(cost, new_cost, topology.levels)
                self._begin(tablet, source, target, self._words.apart(source, target, pairs))
            if self._full() or in_vain >= _UNPLACEABLE_MAX:
                break

    def _better_place(self, tablet: Tablet, cost: int) -> tuple[int, int, int] | None:
        """The member to replace, by which node, and what the tablet costs then; if that is less.

        Where the best place has no slot now, the tablet waits for it, and is not moved for balance meanwhile: it would
        have to leave a lesser place again."""
        best = self._replacement(tablet, tablet.members, copied=False)
        if best is None or best[2] >= cost:
            return None
        found = self._replacement(tablet, self._busy.union(tablet.members), copied=True)
        if found is None or found[2] != best[2]:
            self._touched.add(tablet.tablet_id)
            return None
        return found

    def _replacement(self, tablet: Tablet, barred: Collection[int], *, copied: bool) -> tuple[int, int, int] | None:
        topology, best = self._survey.topology, None
        for node in tablet.members:
            rest = [other for other in tablet.members if other != node]
            target = self._picker.pick(tablet.size, rest, barred, copied=copied, cool=True)
            if target >= 0:
                rank = (topology.cost([*rest, target]), -self._ledger.relief(node, tablet.size), node, target)
                best = rank if best is None else min(best, rank)
        return None if best is None else (best[2], best[3], best[0])

    # -- balance -------------------------------------------------------------------------------------

    def _balance(self) -> None:
        survey, ledger = self._survey, self._ledger
        idle = [n for n, live in enumerate(survey.live) if live and n not in self._busy]
        idle.sort(key=lambda node: (ledger.score[node], node))
        targets = self._targets(idle)
        if len(idle) < 2 or not targets or not self._uneven(idle):
            return
        held = self._held(idle)
        over: list[int] = []
        under: list[int] = []
        for node in reversed(idle):
            (over if max(ledger.by_count[node], ledger.by_bytes[node]) > 1 else under).append(node)
        self._shed_all(over, held, targets)
        if not self._chosen and not self._busy:
            # Of two nodes below their shares the fuller one gives only at rest: it may have to take more.
            self._shed_all(under, held, targets)

    def _shed_all(self, sources: list[int], held: dict[int, list[Tablet]], targets: dict[int, list[int]]) -> None:
        tries = _TABLETS_TRIED_MAX // max(1, len(sources))
        for source in sources:
            for _ in range(self._survey.config.copies_per_node_max):
                if self._full() or not self._shed(source, held[source], targets, tries):
                    break

    def _uneven(self, nodes: list[int]) -> bool:
        """Whether two nodes are further apart than is tolerated, in replicas or in bytes."""
        for fullness in (self._ledger.by_count, self._ledger.by_bytes):
            values = [fullness[node] for node in nodes]
            if max(values) - min(values) > self._survey.config.imbalance_tolerated:
                return True
        return False

    def _targets(self, idle: list[int]) -> dict[int, list[int]]:
        """For each domain, its nodes that can take a replica, the emptiest first."""
        found: dict[int, list[int]] = {}
        paths, root = self._survey.topology.paths, self._survey.topology.root.number
        for node in idle:
            if self._picker.fits(node, 0, (), True, True):
                for domain in (root, *paths[node]):
                    found.setdefault(domain, []).append(node)
        return found

    def _held(self, idle: list[int]) -> dict[int, list[Tablet]]:
        """The tablets that each node could shed: those of whose members none is busy."""
        found: dict[int, list[Tablet]] = {node: [] for node in idle}
        for tablet in self._survey.whole:
            if not self._busy or self._busy.isdisjoint(tablet.members):
                for node in tablet.members:
                    found[node].append(tablet)
        return found

    def _shed(self, source: int, tablets: list[Tablet], targets: dict[int, list[int]], tries: int) -> bool:
        """Begin one move away from a node, the best among some of its tablets; whether there was one."""
        near = list(self._near(source, targets))
        if not near:
            return False
        least = self._survey.config.imbalance_tolerated
        first = int(self._start * len(tablets))
        for at in range(min(len(tablets), tries)):
            tablet = tablets[at - first]
            if tablet.tablet_id in self._touched:
                continue
            target, closed = self._best_target(tablet, source, near, least)
            if target >= 0:
                self._begin(tablet, source, target, self._words.move(source, target, closed))
                return True
        return False

    def _near(self, source: int, targets: dict[int, list[int]]) -> Iterator[int]:
        """Nodes to try, of the whole cluster and of each domain of the source, each once."""
        seen = {source}
        topology, ledger, config = self._survey.topology, self._ledger, self._survey.config
        count, size = ledger.by_count[source] - config.imbalance_tolerated, ledger.by_bytes[source]
        size -= config.imbalance_tolerated
        for domain in (topology.root.number, *topology.paths[source]):
            left = _TARGETS_PER_LEVEL
            for node in targets.get(domain, ()):
                if count <= ledger.by_count[node] and size <= ledger.by_bytes[node]:
                    continue
                if node not in seen and ledger.arriving[node] < config.copies_per_node_max:
                    seen.add(node)
                    yield node
                    left -= 1
                if not left:
                    break

    def _best_target(self, tablet: Tablet, source: int, near: list[int], least: float) -> tuple[int, float]:
        topology, ledger = self._survey.topology, self._ledger
        best, closed, cost = -1, least, -1
        for node in near:
            gap = ledger.gap(tablet.size, source, node)
            if gap <= closed or not self._picker.fits(node, tablet.size, tablet.members, True, True):
                continue
            cost = topology.cost(tablet.members) if cost < 0 else cost
            rest = [node, *(other for other in tablet.members if other != source)]
            if topology.cost(rest) <= cost:
                best, closed = node, gap
        return best, closed

    # -- what later plans will think ------------------------------------------------------------------

    def _kept_by_later_plans(self, before: Ledger) -> list[Move]:
        """Leave out moves until later plans, deciding in their own order, would keep each that is left: while all
        are being copied, and when all are promoted."""
        survey, moves = self._survey, sorted(self._chosen, key=lambda move: move.tablet.tablet_id)
        while moves:
            copying, promoted = before.copy(), before.copy()
            for move in moves:
                promoted.add(move.target, move.tablet.size)
            kept = []
            for move in moves:
                tablet, target = move.tablet, move.target
                members = [*tablet.members, target]
                old = victim(survey.topology, promoted, tablet, members, members)
                promoted.drop(old, tablet.size)
                if keeps(survey, copying, tablet.members, tablet.size, target) and old != target:
                    kept.append(move)
            if len(kept) == len(moves):
                break
            moves = kept
        return moves


def _first_difference(before: int, after: int, levels: int) -> tuple[int, int]:
    """The pairs of two costs at the coarsest level at which they differ."""
    mask = (1 << PAIRS_BITS) - 1
    for level in reversed(range(levels)):
        pairs = (before >> level * PAIRS_BITS & mask, after >> level * PAIRS_BITS & mask)
        if pairs[0] != pairs[1]:
            return pairs
    return 0, 0
