"""The ledger: the replicas and bytes of each node, those that the plan sends there, and how full that makes the node.

The *share* of a node is its part of all disk space. ``by_count`` and ``by_bytes`` are the node's replicas and bytes in
multiples of its share, so 1.0 is the ideal in both. The *potential* of a cluster is the sum, over all nodes, of the
share times the square of either, weighted by ``bytes_share``. Only a change that lowers the potential is worth a copy.
So moves come to an end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from stelae_placement_policy.config import PlacementConfig

SLOT_UNITS = 32
"""The parts of a slot for copies. A small replica takes one at least."""


class Ledger:
    """Amounts by node number.

    Each decision of a plan is entered at once, so that later decisions take it into account."""

    def __init__(
        self, config: PlacementConfig, used: Sequence[int], free: Sequence[int], staying: Sequence[bool]
    ) -> None:
        capacity = [max(1, u + max(0, f)) if s else 0 for u, f, s in zip(used, free, staying, strict=True)]
        total = sum(capacity) or 1
        self.shares = [c / total for c in capacity]
        self.inverse = [total / c if c else 0.0 for c in capacity]
        self.count = [0] * len(capacity)
        self.bytes = [0] * len(capacity)
        self.arriving = [0] * len(capacity)
        """The parts of its slots for copies that arriving replicas take, for each node."""
        self.room = [f - int(c * config.disk_free_ratio_min) for f, c in zip(free, capacity, strict=True)]
        """Bytes that each node can still take."""
        self.by_count = [0.0] * len(capacity)
        self.by_bytes = [0.0] * len(capacity)
        self.score = [0.0] * len(capacity)
        """How full each node is, as one number for comparisons."""
        self.arriving_max = config.copies_per_node_max * SLOT_UNITS
        self._small_bytes = config.small_replica_bytes
        self._bytes_share = config.bytes_share
        self.normalise(1, 0)

    def normalise(self, replicas: int, total_bytes: int) -> None:
        """Set the totals of all nodes once everything is placed. This must happen before any comparison."""
        part = self._bytes_part = self._bytes_share if total_bytes else 0.0
        self.replicas = max(1, replicas)
        self._per_replica = 1 / self.replicas
        self._per_byte = 1 / max(1, total_bytes)
        self._count_weight = (1 - part) * self._per_replica
        self._byte_weight = part * self._per_byte
        for node in range(len(self.count)):
            self._rate(node)

    def copy(self) -> Self:
        """Return a copy for trials. Entries in it do not change this ledger."""
        copied = self.__class__.__new__(self.__class__)
        copied.__dict__.update(self.__dict__)
        for name in ("count", "bytes", "arriving", "room", "by_count", "by_bytes", "score"):
            setattr(copied, name, list(getattr(self, name)))
        return copied

    def has_slot(self, node: int) -> bool:
        """Return whether a node has a slot, or a part of one, for one more copy of any size.

        A copy may take more than what is left. Otherwise small copies that follow each other could keep out a large
        one."""
        return self.arriving[node] < self.arriving_max

    def arrive(self, node: int, size: int) -> None:
        """Enter a copy of ``size`` bytes that is to be made, or is in progress. A small one takes a part of a slot."""
        small = size < self._small_bytes
        self.arriving[node] += max(1, SLOT_UNITS * size // self._small_bytes) if small else SLOT_UNITS

    def add(self, node: int, size: int) -> None:
        """Enter a new replica of ``size`` bytes, which takes room."""
        self.room[node] -= size
        self.restore(node, size)

    def restore(self, node: int, size: int) -> None:
        """Enter a replica again that was there when the plan began and was dropped. Its room is taken already."""
        self.count[node] += 1
        self.bytes[node] += size
        self._rate(node)

    def drop(self, node: int, size: int) -> None:
        """Enter the removal of a replica. Its bytes do not count as free before the node reports them as free."""
        self.count[node] -= 1
        self.bytes[node] -= size
        self._rate(node)

    def gap(self, size: int, source: int, target: int) -> float:
        """Return how far the move of a replica closes the gap between two nodes, in shares.

        Above 0, the move lowers the potential."""
        steps = (self.inverse[source] + self.inverse[target]) / 2
        by_count = self.by_count[source] - self.by_count[target] - steps * self._per_replica
        by_bytes = self.by_bytes[source] - self.by_bytes[target] - steps * self._per_byte * size
        count_weight, byte_weight = self._count_weight, self._byte_weight * size
        weight = count_weight + byte_weight
        return (by_count * count_weight + by_bytes * byte_weight) / weight if weight else 0.0

    def relief(self, node: int, size: int) -> float:
        """Return how much the potential falls if the node loses one of its replicas."""
        step = self.inverse[node]
        by_count = 2 * self.by_count[node] - step * self._per_replica
        by_bytes = 2 * self.by_bytes[node] - step * self._per_byte * size
        return by_count * self._count_weight + by_bytes * self._byte_weight * size

    def _rate(self, node: int) -> None:
        inverse = self.inverse[node]
        by_count = self.by_count[node] = self.count[node] * self._per_replica * inverse
        by_bytes = self.by_bytes[node] = self.bytes[node] * self._per_byte * inverse
        part = self._bytes_part
        self.score[node] = by_count + (by_bytes - by_count) * part
