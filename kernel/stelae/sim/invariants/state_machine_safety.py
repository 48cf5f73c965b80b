"""Replicas apply the same entries in the same order, with the same results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from stelae.sim.invariants.base import AppliedRequest, Invariant
from stelae.sim.world import ObservedNode, World
from stelae.spi.ids import OpId


class StateMachineSafety(Invariant):
    """At each index every replica applies the same entry, with the same outcome for each request.

    Only committed entries are applied."""

    name: ClassVar[str] = "state_machine_safety"
    source: ClassVar[str] = "Raft section 5.4.3, figure 3"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._applied: dict[int, tuple[OpId, tuple[AppliedRequest, ...]]] = {}

    def on_applied(self, node: ObservedNode, op_id: OpId, requests: Sequence[AppliedRequest]) -> None:
        """Compare with what any replica has applied at the same index before."""
        agreed = self.world.committed
        if op_id.index > len(agreed) or agreed[op_id.index - 1] != op_id:
            self.fail(f"node {node.position} applies {op_id}, which is not committed")
            return
        first = self._applied.setdefault(op_id.index, (op_id, tuple(requests)))
        if first != (op_id, tuple(requests)):
            self.fail(f"node {node.position} applies {op_id} with another effect than a replica before")
