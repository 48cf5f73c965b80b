"""A write takes effect once, however often it is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from stelae.sim.history import Answer, AnswerKind, Operation, RowErrors
from stelae.sim.invariants.base import AppliedRequest, Invariant
from stelae.sim.world import NodeView, World
from stelae.spi.ids import OpId


class ExactlyOnce(Invariant):
    """One effect per (client, sequence), and every repetition gets the first answer."""

    name: ClassVar[str] = "exactly_once"
    source: ClassVar[str] = "durability.md rule 16; behaviours.md C17"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._effects: dict[tuple[str, int], tuple[OpId, RowErrors]] = {}

    def on_applied(self, node: NodeView, op_id: OpId, requests: Sequence[AppliedRequest]) -> None:
        """An identity that already took effect at another place must be skipped."""
        for request in requests:
            identity = (request.client, request.sequence)
            if request.skipped:
                if identity not in self._effects:
                    self.fail(f"node {node.position} skips {identity}, which never took effect")
                continue
            effect = self._effects.setdefault(identity, (op_id, request.errors))
            if effect[0] != op_id:
                self.fail(f"node {node.position} applies {identity} at {op_id}, it already took effect at {effect[0]}")

    def on_answered(self, operation: Operation, answer: Answer) -> None:
        """The answer is that of the one effect, also for repetitions and impositions."""
        if not operation.is_write:
            return
        identity = (operation.client, operation.sequence)
        if answer.kind is AnswerKind.DONE:
            if operation.imposed:
                self.fail(f"{identity} with another payload is answered as if it were the first")
            effect = self._effects.get(identity)
            if effect is not None and effect[1] != answer.errors:
                self.fail(f"{identity} is answered {answer.errors}, its effect was {effect[1]}")
            elif [place for place, code in answer.errors if code == "BAD_VALUE"] != operation.unfit:
                self.fail(f"{identity} is answered {answer.errors}, its unfit rows are {operation.unfit}")
        elif answer.kind is AnswerKind.MISMATCH and not operation.imposed:
            self.fail(f"{identity} is refused as another payload, it is the first")
        elif answer.kind is AnswerKind.STALE and not operation.settled:
            self.fail(f"{identity} is called stale; its client has not settled it")
