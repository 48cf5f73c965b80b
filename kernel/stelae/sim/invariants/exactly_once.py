"""A write takes effect exactly once, even if it is sent several times."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from stelae.host.exactly_once_results import ResultsTable
from stelae.host.superblock import Superblock
from stelae.sim.agreed_writes import LogPosition
from stelae.sim.history import AnswerKind, ClientAnswer, ClientOperation, RowErrors
from stelae.sim.invariants.base import AppliedRequest, Invariant
from stelae.sim.table import RowCells, payload_digest
from stelae.sim.world import ObservedNode, World
from stelae.spi.ids import ClientId, OpId
from stelae.spi.schema import Schema


class ExactlyOnce(Invariant):
    """Each identity (client, sequence) has one effect, and every repetition gets the first answer.

    A write takes effect only if its client has started it, with the client's payload, and never after it was refused.
    The rows agree: an entry changes exactly the rows that its first-time operations change. The results survive: a
    superblock with a flushed op id knows every identity that took effect up to that op id."""

    name: ClassVar[str] = "exactly_once"
    source: ClassVar[str] = "durability.md rule 16; behaviours.md C17"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._effects: dict[tuple[str, int], tuple[OpId, RowErrors]] = {}
        self._order: list[tuple[OpId, str, int]] = []
        """The effects in log order: op id, client and sequence."""
        self._begun: dict[tuple[str, int], ClientOperation] = {}
        self._refused: set[tuple[str, int]] = set()
        self._first_incomplete: dict[str, int] = {}

    def on_invoked(self, operation: ClientOperation) -> None:
        """Record the operation of each identity."""
        if operation.is_write:
            self._begun[operation.client, operation.sequence] = operation

    def on_applied(self, node: ObservedNode, op_id: OpId, requests: Sequence[AppliedRequest]) -> None:
        """Check that an identity which took effect in another entry is skipped, and that no other one is.

        One that its client had settled, or whose schema or epoch is over, is skipped although it never took effect."""
        for request in requests:
            settled_below = max(request.first_incomplete, self._first_incomplete.get(request.client, 1))
            self._first_incomplete[request.client] = settled_below
        for request in requests:
            identity = (request.client, request.sequence)
            if request.skipped:
                outdated = request.version != self.world.agreed.schema(op_id.index).version or self._is_over(request)
                if identity not in self._effects and not outdated and not self._is_settled(request):
                    self.fail(f"node {node.position} skips {identity}, which never took effect")
                continue
            if identity not in self._effects:
                self._order.append((op_id, *identity))
                self._judge_effect(node, request)
            effect = self._effects.setdefault(identity, (op_id, request.errors))
            if effect[0] != op_id:
                self.fail(f"node {node.position} applies {identity} at {op_id}, but it took effect at {effect[0]}")

    def _is_settled(self, request: AppliedRequest) -> bool:
        """Return whether the client had given a request up, according to its own entry or an earlier one.

        Later entries do not matter: some node applies an entry before any node applies a later one, and the others must
        do as it did (``state_machine_safety``)."""
        return request.sequence < self._first_incomplete[request.client]

    def _is_over(self, request: AppliedRequest) -> bool:
        """Return whether the source of a request has begun a later epoch before it."""
        if request.fence is None:
            return False
        epochs = self.world.agreed.epochs_before(LogPosition(request.op_id.index, request.order))
        return epochs.get(request.fence.source, 0) > request.fence.epoch

    def _judge_effect(self, node: ObservedNode, request: AppliedRequest) -> None:
        """Check that the first effect of an identity is that of a write which was started and not refused."""
        identity = (request.client, request.sequence)
        begun = self._begun.get(identity)
        if begun is None:
            self.fail(f"node {node.position} applies {identity} at {request.op_id}, but no client has started it")
        elif request.digest and request.digest != payload_digest(begun):
            self.fail(f"node {node.position} applies {identity} at {request.op_id} with a wrong payload")
        elif identity in self._refused:
            self.fail(f"node {node.position} applies {identity} at {request.op_id}, but it was refused to its client")

    def on_changed(self, node: ObservedNode, op_id: OpId, rows: Mapping[int, RowCells | None], schema: Schema) -> None:
        """Check that an entry has changed exactly the rows that its operations change, repetitions excluded."""
        agreed = self.world.agreed
        before, after = agreed.rows(op_id.index - 1, schema), agreed.rows(op_id.index, schema)
        expected = {key: after.get(key) for key in {*before, *after} if before.get(key) != after.get(key)}
        # A store may also return rows that the entry wrote without a change.
        found = {key: value for key, value in rows.items() if before.get(key) != value}
        if found != expected:
            self.fail(f"{op_id} changes {found} on node {node.position}, its operations change {expected}"[:600])

    def on_saved(self, node: ObservedNode, block: Superblock, unsynced: Sequence[str]) -> None:
        """Check that the results know every effect up to the flushed op id, because replay starts after it.

        A replica without rows has no results."""
        if block.log_only:
            return
        table = ResultsTable.load(block.results)
        start = bisect_right(self._order, node.flushed.index, key=_index_of)
        for op_id, client, sequence in self._order[start:]:
            if op_id.index > block.flushed.index:
                return
            if not table.knows(ClientId(client), range(sequence, sequence + 1)):
                self.fail(
                    f"node {node.position} has flushed {op_id}, but its results do not know {(client, sequence)} of it"
                )
                return

    def on_answered(self, operation: ClientOperation, answer: ClientAnswer) -> None:
        """Check that an answer is that of the one effect, also for repetitions and for imposed payloads."""
        if not operation.is_write:
            return
        identity = (operation.client, operation.sequence)
        if answer.kind is AnswerKind.DONE:
            if operation.imposed:
                self.fail(f"{identity} with another payload gets the answer of the first payload")
            effect = self._effects.get(identity)
            if effect is not None and effect[1] != answer.errors:
                self.fail(f"{identity} is answered {answer.errors}, its effect was {effect[1]}")
            elif effect is not None and answer.timestamp != self._stamp_of(effect[0]):
                self.fail(f"{identity} is answered as of {answer.timestamp}, it took effect at {effect[0]}")
            elif [position for position, code in answer.errors if code == "BAD_VALUE"] != operation.unfit:
                self.fail(f"{identity} is answered {answer.errors}, its unfit rows are {operation.unfit}")
        elif answer.kind is AnswerKind.MISMATCH and not operation.imposed:
            self.fail(f"{identity} is refused as another payload, but it has the first payload")
        elif answer.kind is AnswerKind.STALE and not operation.settled:
            self.fail(f"{identity} is refused as stale, but its client has not settled it")
        elif answer.kind is AnswerKind.REFUSED and not operation.imposed:
            self._refused.add(identity)
            if identity in self._effects:
                self.fail(f"{identity} is refused, but it took effect at {self._effects[identity][0]}")

    def _stamp_of(self, op_id: OpId) -> int:
        entry = self.world.entries.get(op_id)
        return entry.timestamp if entry is not None else 0


def _index_of(effect: tuple[OpId, str, int]) -> int:
    return effect[0].index
