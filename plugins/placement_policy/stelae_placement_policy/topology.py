"""The locations of nodes as a tree, and the cost of replicas that share a location.

A location ``/dc/rack/host`` names one *domain* for each of its parts. There may be any number of parts. A node with
fewer parts than others counts as apart from all other nodes at the missing levels. All nodes without a location share
one domain.

The *cost* of a set of nodes is the number of pairs that share a domain, counted by level, the coarsest first: one pair
less in a data centre outweighs all racks. Zero is the best cost. ``attainable`` is the best cost that the cluster can
have for a replication factor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

PAIRS_BITS = 16
"""Bits of the pairs of one level. 300 members have fewer than 2**16 pairs."""


class Domain:
    """A location that can fail as a whole: its parent, its inner domains, and its open nodes."""

    __slots__ = ("children", "level", "nodes", "number", "parent", "reach", "weights")

    def __init__(self, number: int, level: int, parent: Domain | None) -> None:
        self.number = number
        self.level = level
        self.parent = parent
        self.children = 0
        """Number of inner domains with open nodes."""
        self.nodes: list[int] = []
        self.weights: list[float] = []
        """Cumulative weights in the order of ``nodes``, for random draws."""
        self.reach = 0.0


class Topology:
    """The tree of locations for one plan. Nodes are numbered from 0. *Open* nodes can take replicas."""

    def __init__(self, locations: Sequence[str], open_nodes: Iterable[int], weights: Sequence[float]) -> None:
        parts = [tuple(part for part in location.split("/") if part) or ("",) for location in locations]
        self.levels = max(map(len, parts), default=1)
        self.root = Domain(0, 0, None)
        self.domains = [self.root]
        self.columns: list[list[int]] = [[] for _ in range(self.levels)]
        """For each level, the number of each node's domain."""
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
        """Return the cost of replicas on these nodes; see the docstring of the module."""
        total, size = 0, len(members)
        for column in self.columns:
            total <<= PAIRS_BITS
            places = [column[node] for node in members]
            if len(set(places)) != size:
                total += sum(place == other for at, place in enumerate(places) for other in places[:at])
        return total

    def counts(self, members: Iterable[int]) -> dict[int, int]:
        """Return how many of the nodes are in each domain, by its number. Domains without one are left out."""
        found: dict[int, int] = {}
        for node in members:
            for domain in self.paths[node]:
                found[domain] = found.get(domain, 0) + 1
        return found

    def attainable(self, replicas: int) -> int:
        """Return the cost of a number of replicas if each is placed, one by one, where it costs least."""
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
