"""Locations as a tree: who shares a data centre, a rack, a host, and what it costs a tablet.

A location ``/dc/rack/host`` names one *domain* for each of its parts, whatever their number. Nodes that say less are
taken to be apart from all others below what they say; nodes that say nothing share one nameless domain.

The *cost* of a set of nodes counts the pairs that share a domain, coarsest level first: one pair less in a data centre
outweighs all racks. Zero is the best there is; what a cluster can do for a replication factor is ``attainable``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

PAIRS_BITS = 16
"""Bits for the pairs of one level: 300 members have fewer pairs than 2**16."""


class Domain:
    """A place that can fail as a whole: its parent, the domains below, and the open nodes in it."""

    __slots__ = ("children", "level", "nodes", "number", "parent", "reach", "weights")

    def __init__(self, number: int, level: int, parent: Domain | None) -> None:
        self.number = number
        self.level = level
        self.parent = parent
        self.children = 0
        """How many domains below have open nodes."""
        self.nodes: list[int] = []
        self.weights: list[float] = []
        """Cumulative, in the order of ``nodes``: for drawing a node by its weight."""
        self.reach = 0.0


class Topology:
    """The tree of one plan. Nodes are known by their numbers, 0 and up."""

    def __init__(self, locations: Sequence[str], open_nodes: Iterable[int], weights: Sequence[float]) -> None:
        parts = [tuple(part for part in location.split("/") if part) or ("",) for location in locations]
        self.levels = max(map(len, parts), default=1)
        self.root = Domain(0, 0, None)
        self.domains = [self.root]
        self.columns: list[list[int]] = [[] for _ in range(self.levels)]
        """For each level, the number of the domain that each node is in."""
        names: dict[tuple[object, ...], Domain] = {}
        for node, path in enumerate(parts):
            self._add(node, path, names)
        self.paths = list(zip(*self.columns, strict=True))
        for node in open_nodes:
            self._open(node, weights[node])
        self.parents = [-1 if domain.parent is None else domain.parent.number for domain in self.domains]
        self.reach = [bool(domain.nodes) for domain in self.domains]
        self._attainable: dict[int, int] = {}

    def cost(self, members: Sequence[int]) -> int:
        """What it costs a tablet to have its replicas on these nodes; see the module."""
        total, size = 0, len(members)
        for column in self.columns:
            total <<= PAIRS_BITS
            places = [column[node] for node in members]
            if len(set(places)) != size:
                total += sum(place == other for at, place in enumerate(places) for other in places[:at])
        return total

    def counts(self, members: Iterable[int]) -> dict[int, int]:
        """How many of the nodes are in each domain, by its number; others are absent."""
        found: dict[int, int] = {}
        for node in members:
            for domain in self.paths[node]:
                found[domain] = found.get(domain, 0) + 1
        return found

    def attainable(self, replicas: int) -> int:
        """The cost that so many replicas have when nodes are picked one by one, each where it costs least."""
        if replicas not in self._attainable:
            members: list[int] = []
            while len(members) < min(replicas, len(self.root.nodes)):
                members.append(self._next(members))
            self._attainable[replicas] = self.cost(members)
        return self._attainable[replicas]

    def _next(self, members: list[int]) -> int:
        taken = self.counts(members)
        free = (node for node in self.root.nodes if node not in members)
        return min(free, key=lambda node: [taken.get(domain, 0) for domain in self.paths[node]])

    def _add(self, node: int, path: tuple[str, ...], names: dict[tuple[object, ...], Domain]) -> None:
        parent = self.root
        for level in range(self.levels):
            name = (*path[: level + 1], *((node,) if level >= len(path) else ()))
            domain = names.get(name)
            if domain is None:
                domain = names[name] = Domain(len(self.domains), level + 1, parent)
                self.domains.append(domain)
            self.columns[level].append(domain.number)
            parent = domain

    def _open(self, node: int, weight: float) -> None:
        inner: Domain | None = self.domains[self.paths[node][-1]]
        while inner is not None:
            if not inner.nodes and inner.parent is not None:
                inner.parent.children += 1
            inner.reach += weight
            inner.nodes.append(node)
            inner.weights.append(inner.reach)
            inner = inner.parent
