"""Operations take effect in one order that agrees with real time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from stelae.sim.agreed import LogPosition
from stelae.sim.history import AnswerKind, ClientAction, ClientAnswer, ClientOperation
from stelae.sim.invariants.base import Invariant
from stelae.sim.linear import LinearStep, OrderVerdict, TimedCall, check
from stelae.sim.world import World

START = LogPosition(0, 0)


class Linearizability(Invariant):
    """Per key, reads and writes behave like one register.

    Judged twice. While the run goes on the log is the witness: each write has its place there, values are never
    repeated, and so a read names the place it saw. An operation that begins after another ended must come at or after
    it in the log; a read may see its key as of any place from there on. In the end the history of each key alone is
    put to a checker (``stelae.sim.linear``) that knows no log, but what inserts, updates and deletes mean."""

    name: ClassVar[str] = "linearizability"
    source: ClassVar[str] = "behaviours.md C14, D1; Herlihy and Wing 1990; Wing and Gong 1993; Lowe 2017"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._operations: list[ClientOperation] = []
        self._answers: dict[int, tuple[int, ClientAnswer]] = {}
        self._floor = START
        self._floors: dict[int, LogPosition] = {}
        """Floor of every open operation, by identity of its place in the history."""

    def on_invoked(self, operation: ClientOperation) -> None:
        """What has ended before must come before."""
        self._floors[operation.invoked] = self._floor
        self._operations.append(operation)

    def on_answered(self, operation: ClientOperation, answer: ClientAnswer) -> None:
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

    def at_end(self) -> None:
        """Judge the history of each key on its own.

        A write of unknown outcome that no replica has applied by now is left out: it never takes effect. Each such
        write would double the number of orders to look through."""
        calls: dict[int, list[TimedCall]] = {}
        for operation in self._operations:
            place = self.world.agreed.place_of(operation.client, operation.sequence) if operation.is_write else None
            if operation.is_write and operation.answer is None and place is None:
                continue
            for key, call in _calls(operation, place):
                calls.setdefault(key, []).append(call)
        for key, found in sorted(calls.items()):
            finding = check(found)
            if finding.verdict is OrderVerdict.IMPOSSIBLE:
                self.fail(f"no order of what was done to key {key} fits its answers; stuck at {finding.stuck}"[:600])
            elif finding.verdict is OrderVerdict.UNDECIDED:
                self.fail(f"the history of key {key} is beyond the checker after {finding.tried} states")

    def _judge_write(self, operation: ClientOperation, floor: LogPosition) -> LogPosition | None:
        place = self.world.agreed.place_of(operation.client, operation.sequence)
        if place is not None and place <= floor:
            self.fail(
                f"write {operation.client}/{operation.sequence} takes effect at {place}, "
                f"but began after {floor} was answered"
            )
        return place

    def _judge_read(self, operation: ClientOperation, answer: ClientAnswer, floor: LogPosition) -> LogPosition | None:
        """Find the first place from ``floor`` on as of which the key reads like the answer."""
        current, since = None, START
        key = operation.rows[0].key
        for effect in self.world.agreed.effects(key):
            if effect.place > floor and answer.value == current:
                break
            current, since = effect.value, effect.place
        if current == answer.value:
            return max(since, START)
        self.fail(
            f"key {key} reads {answer.value!r} by {operation.client}; "
            f"no state of it from {floor} on is that, it is {current!r} since {since}"
        )
        return None


def _calls(operation: ClientOperation, hint: LogPosition | None) -> Iterator[tuple[int, TimedCall]]:
    """What an operation was to each of its keys. A read without an answer was nothing; nor was an unfit row, nor a
    write that was refused."""
    answer = operation.answer
    known = answer is not None and answer.kind is AnswerKind.DONE
    refused = answer is not None and answer.kind is AnswerKind.REFUSED
    if refused or (not operation.is_write and not known):
        return
    errors = dict(answer.errors) if answer is not None else {}
    steps: dict[int, list[LinearStep]] = {}
    for place, row in enumerate(operation.rows):
        if row.unfit:
            continue
        read = operation.action is ClientAction.READ and answer is not None
        value = answer.value if read and answer is not None else row.value
        steps.setdefault(row.key, []).append(LinearStep(operation.action, value, errors.get(place)))
    for key, found in steps.items():
        answered = operation.answered if known else None
        name = f"{operation.client}/{operation.sequence or f'read {operation.invoked}'}"
        at = operation.invoked
        yield key, TimedCall(name=name, invoked=at, answered=answered, steps=tuple(found), hint=tuple(hint or ()))
