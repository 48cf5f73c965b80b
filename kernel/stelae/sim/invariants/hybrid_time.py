"""Timestamps in the log never go back, nor run away."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import NodeView, World
from stelae.spi.ids import OpId
from stelae.spi.wal import Append, Outcome


class HybridTime(Invariant):
    """Along every log timestamps rise, whatever the wall clocks of its leaders did.

    Across leaders too: a new leader has stored, and so observed, all that it builds upon.
    """

    name: ClassVar[str] = "hybrid_time"
    source: ClassVar[str] = "durability.md rule 14"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._stamps: dict[OpId, int] = {}

    def on_wal(self, node: NodeView, append: Append, outcome: Outcome) -> None:
        """Compare each entry with its predecessor."""
        if not append.entries:
            return
        before = node.durable_at(append.entries[0].op_id.index - 1)
        stamp = self._stamps.get(before, 0) if before is not None else 0
        for entry in append.entries:
            if entry.timestamp <= stamp:
                self.fail(
                    f"node {node.position} stores {entry.op_id} at {entry.timestamp}, "
                    f"its predecessor is at {stamp}"
                )
            stamp = self._stamps[entry.op_id] = entry.timestamp
