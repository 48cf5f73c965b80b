"""Operations take effect in one order that agrees with real time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from stelae.sim.history import Action, Answer, AnswerKind, Operation, Row
from stelae.sim.invariants.base import AppliedRequest, Invariant
from stelae.sim.world import NodeView, World
from stelae.spi.ids import OpId


class Place(NamedTuple):
    """Where a write took effect: index of its log entry, then its order within it."""

    entry: int
    order: int


START = Place(0, 0)


class Linearizability(Invariant):
    """Per key, reads and writes behave like one register that is changed in log order.

    The log is the witness: each write has its place there, values are never repeated, and so a
    read names the place it saw. An operation that begins after another ended must come at or after
    it in the log; a read may see its key as of any place from there on."""

    name: ClassVar[str] = "linearizability"
    source: ClassVar[str] = "behaviours.md C14; Herlihy and Wing 1990"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._writes: dict[tuple[str, int], Operation] = {}
        self._places: dict[tuple[str, int], Place] = {}
        self._changes: dict[int, list[tuple[Place, str | None]]] = {}
        self._floor = START
        self._floors: dict[int, Place] = {}
        """Floor of every open operation, by identity of its place in the history."""

    def rows(self) -> dict[int, str]:
        """Value by key as of the last change that was seen."""
        latest = {key: changes[-1][1] for key, changes in self._changes.items()}
        return {key: value for key, value in sorted(latest.items()) if value is not None}

    def on_invoked(self, operation: Operation) -> None:
        """What has ended before must come before."""
        self._floors[operation.invoked] = self._floor
        if operation.is_write:
            self._writes[operation.client, operation.sequence] = operation

    def on_applied(self, node: NodeView, op_id: OpId, requests: Sequence[AppliedRequest]) -> None:
        """Give each write its place; changes arrive in log order from whichever node is first."""
        for request in requests:
            identity = (request.client, request.sequence)
            operation = self._writes.get(identity)
            if request.skipped or identity in self._places or operation is None:
                continue
            place = Place(op_id.index, request.order)
            self._places[identity] = place
            untaken = {number for number, _ in request.errors}
            for number, row in enumerate(operation.rows):
                if number not in untaken:
                    self._change(row, place, deleted=operation.action is Action.DELETE)

    def _change(self, row: Row, place: Place, *, deleted: bool) -> None:
        """Of several rows of one key in an operation the last one is what can be read."""
        changes = self._changes.setdefault(row.key, [])
        if changes and changes[-1][0] == place:
            changes.pop()
        changes.append((place, None if deleted else row.value))

    def on_answered(self, operation: Operation, answer: Answer) -> None:
        """Judge where the operation took effect against what had ended before it began."""
        if answer.kind is not AnswerKind.DONE:
            return
        floor = self._floors.pop(operation.invoked, None)
        if floor is None:
            return
        place = (
            self._judge_write(operation, floor) if operation.is_write else self._judge_read(operation, answer, floor)
        )
        if place is not None and place > self._floor:
            self._floor = place

    def _judge_write(self, operation: Operation, floor: Place) -> Place | None:
        place = self._places.get((operation.client, operation.sequence))
        if place is not None and place <= floor:
            self.fail(
                f"write {operation.client}/{operation.sequence} takes effect at {place}, "
                f"but began after {floor} was answered"
            )
        return place

    def _judge_read(self, operation: Operation, answer: Answer, floor: Place) -> Place | None:
        """Find the first place from ``floor`` on as of which the key reads like the answer."""
        current, since = None, START
        key = operation.rows[0].key
        for place, value in self._changes.get(key, []):
            if place > floor and answer.value == current:
                break
            current, since = value, place
        if current == answer.value:
            return max(since, START)
        self.fail(
            f"key {key} reads {answer.value!r} by {operation.client}; "
            f"no state of it from {floor} on is that, it is {current!r} since {since}"
        )
        return None
