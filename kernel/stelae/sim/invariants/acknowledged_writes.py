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

    A majority of the config that the leader uses when it applies the entry counts. Its crash before the client has the
    answer may end that config, if no other log has it. Every majority of the config before it still has the entry.

    At the end, the log of every live member contains every acknowledged write."""

    name: ClassVar[str] = "acknowledged_writes"
    source: ClassVar[str] = "architecture.md section 2; behaviours.md C2 and W2"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._op_ids: dict[tuple[str, int], OpId] = {}
        self._applied_on_majority: set[OpId] = set()
        self._acknowledged: list[tuple[str, int]] = []

    def on_applied(self, node: ObservedNode, op_id: OpId, requests: Sequence[AppliedRequest]) -> None:
        """Record the entry in which each write first took effect, and whether it is durable on a majority by then."""
        for request in requests:
            self._op_ids.setdefault((request.client, request.sequence), op_id)
        if op_id not in self._applied_on_majority and self._is_on_majority(op_id):
            self._applied_on_majority.add(op_id)

    def on_answered(self, operation: ClientOperation, answer: ClientAnswer) -> None:
        """Check an acknowledgement when it is given."""
        if not operation.is_write or answer.kind is not AnswerKind.DONE:
            return
        identity = (operation.client, operation.sequence)
        op_id = self._op_ids.get(identity)
        if op_id is None:
            self.fail(f"write {identity} is acknowledged but no replica has applied it")
            return
        if op_id not in self._applied_on_majority and not self._is_on_majority(op_id):
            self.fail(f"write {identity} at {op_id} is acknowledged but not durable on a majority")
        self._acknowledged.append(identity)

    def _is_on_majority(self, op_id: OpId) -> bool:
        return any(self.world.on_majority(op_id, config) for config in self.world.possible_configs())

    def at_end(self) -> None:
        """Check that the log of every live replica contains every acknowledged write."""
        for identity in self._acknowledged:
            op_id = self._op_ids[identity]
            for node in self.world.members():
                if node.status is not None and not self.world.holds(node, op_id):
                    self.fail(f"acknowledged write {identity} at {op_id} is lost on node {node.position}")
                    return
