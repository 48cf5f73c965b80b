"""Replicas that have applied the same entries have the same rows, with any store engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode, World
from stelae.spi.schema import Schema


class ReplicaChecksums(Invariant):
    """As of one op id all replicas have the same logical checksum: that of the agreed writes up to the op id.

    The checksum is compared for some applied entries and after each opening of a store, where it must be that of the
    flushed op id. So the invariant finds a store that recovers with older or newer rows, or with rows of files that are
    not its own."""

    name: ClassVar[str] = "replica_checksums"
    source: ClassVar[str] = "contract store, 1 to 3; issue: checksum equality of replicas at the same applied op id"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._seen: dict[tuple[int, int], tuple[str, str]] = {}

    def on_checksum(self, node: ObservedNode, engine: str, index: int, checksum: str, schema: Schema) -> None:
        """Compare with the first replica that reported a checksum for this index, and with the agreed writes."""
        who = f"{engine} on node {node.position}"
        first, known = self._seen.setdefault((index, schema.version), (who, checksum))
        if known != checksum:
            self.fail(f"{who} has checksum {checksum} as of index {index}, {first} has {known}")
            return
        expected = self.world.agreed.checksum(index, schema)
        if checksum != expected:
            self.fail(f"{who} has checksum {checksum} as of index {index}, the agreed writes have {expected}")
