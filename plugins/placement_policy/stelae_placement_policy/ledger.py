"""The ledger: what each node has, what is on its way there, and how full that makes it.

A node's *share* is its part of all disk space. ``by_count`` and ``by_bytes`` are what it has in multiples of its
share, so 1.0 is the ideal in both. The *potential* of a cluster is the sum over nodes of share times the square of
either, weighted by ``bytes_share``. Only changes that lower it are worth a copy, which is why moves end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from stelae_placement_policy.config import Config


class Ledger:
    """Amounts per node number. What a plan decides is entered at once, so that later decisions see it."""

    def __init__(self, config: Config, used: Sequence[int], free: Sequence[int], standing: Sequence[bool]) -> None:
        capacity = [max(1, u + max(0, f)) if s else 0 for u, f, s in zip(used, free, standing, strict=True)]
        whole = sum(capacity) or 1
        self.shares = [c / whole for c in capacity]
        self.inverse = [whole / c if c else 0.0 for c in capacity]
        self.count = [0] * len(capacity)
        self.bytes = [0] * len(capacity)
        self.arriving = [0] * len(capacity)
        self.room = [f - int(c * config.disk_free_ratio_min) for f, c in zip(free, capacity, strict=True)]
        """Bytes that may still be brought there."""
        self.by_count = [0.0] * len(capacity)
        self.by_bytes = [0.0] * len(capacity)
        self.score = [0.0] * len(capacity)
        """Fullness as one number, for comparing nodes."""
        self._bytes_share = config.bytes_share
        self.normalise(1, 0)

    def normalise(self, replicas: int, total_bytes: int) -> None:
        """State what all nodes have together once everything is placed; comes before any comparison."""
        part = self._bytes_part = self._bytes_share if total_bytes else 0.0
        self.replicas = max(1, replicas)
        self._per_replica = 1 / self.replicas
        self._per_byte = 1 / max(1, total_bytes)
        self._count_weight = (1 - part) * self._per_replica
        self._byte_weight = part * self._per_byte
        for node in range(len(self.count)):
            self._rate(node)

    def copy(self) -> Self:
        """Return a ledger for trying out; entries in it do not show here."""
        other = self.__class__.__new__(self.__class__)
        other.__dict__.update(self.__dict__)
        for name in ("count", "bytes", "arriving", "room", "by_count", "by_bytes", "score"):
            setattr(other, name, list(getattr(self, name)))
        return other

    def add(self, node: int, size: int) -> None:
        """Enter a replica of ``size`` bytes that the node is to have, and take its room."""
        self.room[node] -= size
        self.restore(node, size)

    def restore(self, node: int, size: int) -> None:
        """Enter a replica whose room is taken already: one that was there when the plan began, and was dropped."""
        self.count[node] += 1
        self.bytes[node] += size
        self._rate(node)

    def drop(self, node: int, size: int) -> None:
        """Enter that a replica goes. Its bytes are not given away before they are seen to be free."""
        self.count[node] -= 1
        self.bytes[node] -= size
        self._rate(node)

    def gap(self, size: int, source: int, target: int) -> float:
        """How far the move of a replica from source to target closes the gap between them, in shares; above 0 it
        lowers the potential."""
        steps = (self.inverse[source] + self.inverse[target]) / 2
        by_count = self.by_count[source] - self.by_count[target] - steps * self._per_replica
        by_bytes = self.by_bytes[source] - self.by_bytes[target] - steps * self._per_byte * size
        count_weight, byte_weight = self._count_weight, self._byte_weight * size
        weight = count_weight + byte_weight
        return (by_count * count_weight + by_bytes * byte_weight) / weight if weight else 0.0

    def relief(self, node: int, size: int) -> float:
        """How much the potential falls when the node loses a replica that it has."""
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
