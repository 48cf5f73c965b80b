"""At most one leader per term."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode, World
from stelae.spi.consensus import Role, Status


class ElectionSafety(Invariant):
    """No two nodes lead in the same term, at any time of a run."""

    name: ClassVar[str] = "election_safety"
    source: ClassVar[str] = "Raft section 5.2, figure 3"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._leaders: dict[int, int] = {}

    def on_status(self, node: ObservedNode, before: Status | None, status: Status) -> None:
        """Check that no other node has led in this term."""
        if status.role is not Role.LEADER:
            return
        holder = self._leaders.setdefault(status.term, node.position)
        if holder != node.position:
            self.fail(f"nodes {holder} and {node.position} both lead in term {status.term}")
