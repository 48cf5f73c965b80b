"""Replicas that have applied the same entries hold the same rows, whatever engine keeps them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode, World
from stelae.spi.schema import Schema


class ReplicaChecksums(Invariant):
    """As of one op id all replicas have one logical checksum, that of the agreed writes up to it.

    Judged while entries are applied and after every opening of a store, where it must be that of what was flushed: a
    store that comes back with rows of before or after it, or with rows of files that are not its own, shows here."""

    name: ClassVar[str] = "replica_checksums"
    source: ClassVar[str] = "contract store, 1 to 3; issue: checksum equality of replicas at the same applied op id"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._seen: dict[tuple[int, int], tuple[str, str]] = {}

    def on_checksum(self, node: ObservedNode, engine: str, index: int, checksum: str, schema: Schema) -> None:
        """Compare with the replica that was there first, and with the agreed writes."""
        who = f"{engine} on node {node.position}"
        first, known = self._seen.setdefault((index, schema.version), (who, checksum))
        if known != checksum:
            self.fail(f"{who} has checksum {checksum} as of {index}, {first} has {known}")
            return
        expected = self.world.agreed.checksum(index, schema)
        if checksum != expected:
            self.fail(f"{who} has checksum {checksum} as of {index}, the agreed writes have {expected}")
