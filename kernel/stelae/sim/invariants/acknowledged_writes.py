"""No acknowledged write is ever lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from stelae.sim.history import AnswerKind, ClientAnswer, ClientOperation
from stelae.sim.invariants.base import AppliedRequest, Invariant
from stelae.sim.world import ObservedNode, World
from stelae.spi.ids import OpId


class AcknowledgedWrites(Invariant):
    """A write is acknowledged only once its entry is durable on a majority, and the entry stays committed.

    At the end, the log of every live member contains every acknowledged write."""

    name: ClassVar[str] = "acknowledged_writes"
    source: ClassVar[str] = "architecture.md section 2; behaviours.md C2 and W2"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._op_ids: dict[tuple[str, int], OpId] = {}
        self._acknowledged: list[tuple[str, int]] = []

    def on_applied(self, node: ObservedNode, op_id: OpId, requests: Sequence[AppliedRequest]) -> None:
        """Record the entry in which each write first took effect."""
        for request in requests:
            self._op_ids.setdefault((request.client, request.sequence), op_id)

    def on_answered(self, operation: ClientOperation, answer: ClientAnswer) -> None:
        """Check an acknowledgement when it is given."""
        if not operation.is_write or answer.kind is not AnswerKind.DONE:
            return
        identity = (operation.client, operation.sequence)
        op_id = self._op_ids.get(identity)
        if op_id is None:
            self.fail(f"write {identity} is acknowledged but no replica has applied it")
            return
        if not any(self.world.on_majority(op_id, config) for config in self.world.possible_configs()):
            self.fail(f"write {identity} at {op_id} is acknowledged but not durable on a majority")
        self._acknowledged.append(identity)

    def at_end(self) -> None:
        """Check that the log of every live replica contains every acknowledged write."""
        for identity in self._acknowledged:
            op_id = self._op_ids[identity]
            for node in self.world.members():
                if node.status is not None and not self.world.holds(node, op_id):
                    self.fail(f"acknowledged write {identity} at {op_id} is lost on node {node.position}")
                    return
