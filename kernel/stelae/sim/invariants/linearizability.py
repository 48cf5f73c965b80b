"""Operations take effect in one order that agrees with real time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from stelae.sim.agreed_writes import LogPosition
from stelae.sim.history import AnswerKind, ClientAction, ClientAnswer, ClientOperation
from stelae.sim.invariants.base import Invariant
from stelae.sim.linearizability_checker import LinearStep, OrderVerdict, TimedCall, check
from stelae.sim.world import World

START = LogPosition(0, 0)


class Linearizability(Invariant):
    """The reads and writes of each key behave like those of one register.

    The invariant judges twice. During the run it uses the log: each write has a position there, and values are never
    repeated, so a read identifies the position that it saw. An operation that begins after another one ended must come
    at or after it in the log. A read may see its key as of any position from there on. At the end of the run, the
    history of each key is checked on its own (``stelae.sim.linearizability_checker``), without the log, by the meaning
    of inserts, updates and deletes."""

    name: ClassVar[str] = "linearizability"
    source: ClassVar[str] = "behaviours.md C14, D1; Herlihy and Wing 1990; Wing and Gong 1993; Lowe 2017"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._operations: list[ClientOperation] = []
        self._answers: dict[int, tuple[int, ClientAnswer]] = {}
        self._floor = START
        self._floors: dict[int, LogPosition] = {}
        """The lowest allowed log position of every open operation, by ``ClientOperation.invoked``."""

    def on_invoked(self, operation: ClientOperation) -> None:
        """Record the lowest allowed log position: that of the operations which have ended."""
        self._floors[operation.invoked] = self._floor
        self._operations.append(operation)

    def on_answered(self, operation: ClientOperation, answer: ClientAnswer) -> None:
        """Check that the operation took effect after those that had ended before it began."""
        if answer.kind is not AnswerKind.DONE:
            return
        floor = self._floors.pop(operation.invoked, None)
        if floor is None:
            return
        position = (
            self._judge_write(operation, floor) if operation.is_write else self._judge_read(operation, answer, floor)
        )
        if position is not None and position > self._floor:
            self._floor = position

    def at_end(self) -> None:
        """Check the history of each key on its own.

        A write with an unknown outcome that no replica has applied by now is left out, because it never takes effect.
        Each such write would double the number of orders to try."""
        calls: dict[int, list[TimedCall]] = {}
        for operation in self._operations:
            position = (
                self.world.agreed.position_of(operation.client, operation.sequence) if operation.is_write else None
            )
            if operation.is_write and operation.answer is None and position is None:
                continue
            for key, call in _calls(operation, position):
                calls.setdefault(key, []).append(call)
        for key, found in sorted(calls.items()):
            finding = check(found)
            if finding.verdict is OrderVerdict.IMPOSSIBLE:
                self.fail(f"no order of the operations on key {key} fits the answers; stuck at {finding.stuck}"[:600])
            elif finding.verdict is OrderVerdict.UNDECIDED:
                self.fail(f"the history of key {key} is undecided after {finding.tried} states")

    def _judge_write(self, operation: ClientOperation, floor: LogPosition) -> LogPosition | None:
        position = self.world.agreed.position_of(operation.client, operation.sequence)
        if position is not None and position <= floor:
            self.fail(
                f"write {operation.client}/{operation.sequence} takes effect at {position}, "
                f"but began after {floor} was answered"
            )
        return position

    def _judge_read(self, operation: ClientOperation, answer: ClientAnswer, floor: LogPosition) -> LogPosition | None:
        """Return the first position from ``floor`` on as of which the key has the value of the answer."""
        current, since = None, START
        key = operation.rows[0].key
        for effect in self.world.agreed.effects(key):
            if effect.position > floor and answer.value == current:
                break
            current, since = effect.value, effect.position
        if current == answer.value:
            return max(since, START)
        self.fail(
            f"{operation.client} reads {answer.value!r} for key {key}, "
            f"which never has this value from {floor} on; it is {current!r} since {since}"
        )
        return None


def _calls(operation: ClientOperation, hint: LogPosition | None) -> Iterator[tuple[int, TimedCall]]:
    """Yield the call of an operation on each of its keys.

    Reads without an answer, refused writes and unfit rows yield nothing."""
    answer = operation.answer
    known = answer is not None and answer.kind is AnswerKind.DONE
    refused = answer is not None and answer.kind is AnswerKind.REFUSED
    if refused or (not operation.is_write and not known):
        return
    errors = dict(answer.errors) if answer is not None else {}
    steps: dict[int, list[LinearStep]] = {}
    for position, row in enumerate(operation.rows):
        if row.unfit:
            continue
        read = operation.action is ClientAction.READ and answer is not None
        value = answer.value if read and answer is not None else row.value
        steps.setdefault(row.key, []).append(LinearStep(operation.action, value, errors.get(position)))
    for key, found in steps.items():
        answered = operation.answered if known else None
        name = f"{operation.client}/{operation.sequence or f'read {operation.invoked}'}"
        at = operation.invoked
        yield key, TimedCall(name=name, invoked=at, answered=answered, steps=tuple(found), hint=tuple(hint or ()))
