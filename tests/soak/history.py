"""The history of clients of real processes, for each key, and a check that one order of its operations is possible.

The checker is that of the simulator (``stelae.sim.linearizability_checker``). It uses only the meaning of the
operations, no log. At the end every key is read once more, so a lost acknowledged write makes the history of its key
impossible."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from stelae.sim.history import ClientAction
from stelae.sim.linearizability_checker import LinearStep, OrderFinding, OrderVerdict, TimedCall, check


@dataclass(slots=True, eq=False)
class AskedOperation:
    """An operation on one key. ``answered`` is ``None`` while nobody knows whether it took effect."""

    name: str
    action: ClientAction
    key: int
    value: str | None
    invoked: int
    answered: int | None = None
    error: str | None = None
    hint: tuple[int, ...] = ()

    def call(self) -> TimedCall:
        """The operation as the checker takes it."""
        step = LinearStep(self.action, self.value, self.error)
        return TimedCall(name=self.name, invoked=self.invoked, answered=self.answered, steps=(step,), hint=self.hint)


@dataclass(slots=True)
class KeyHistories:
    """All operations of a run; ``clock`` counts beginnings and ends.

    A client that sees them in its one thread of control numbers them in an order that agrees with real time."""

    clock: int = 0
    asked: dict[int, list[AskedOperation]] = field(default_factory=dict)
    acknowledged: int = 0
    unknown: int = 0

    def begin(self, name: str, action: ClientAction, key: int, value: str | None) -> AskedOperation:
        """Note that an operation begins."""
        self.clock += 1
        begun = AskedOperation(name, action, key, value, self.clock)
        self.asked.setdefault(key, []).append(begun)
        return begun

    def end_write(self, begun: AskedOperation, error: str | None, timestamp: int) -> None:
        """Note the outcome of a write: the row's error, ``None`` if it was taken, and when it took effect."""
        self._end(begun)
        begun.error = error
        begun.hint = (timestamp,)
        self.acknowledged += error is None

    def end_read(self, begun: AskedOperation, value: str | None) -> None:
        """Note what a read saw."""
        self._end(begun)
        begun.value = value

    def give_up(self, begun: AskedOperation) -> None:
        """Note that nobody will know the outcome: a read of that kind says nothing, a write may have taken effect."""
        if begun.action is ClientAction.READ:
            self.asked[begun.key].remove(begun)
        else:
            self.unknown += 1

    def judge(self) -> dict[int, OrderFinding]:
        """Return the findings on all keys whose history has no possible order, or is beyond the checker."""
        findings = {key: check([one.call() for one in found]) for key, found in self.asked.items()}
        return {key: one for key, one in findings.items() if one.verdict is not OrderVerdict.LINEARIZABLE}

    def without(self, lost: AskedOperation) -> KeyHistories:
        """The history of a run that told everybody else as if a write had not been: for tests of the judgement."""
        kept = {key: [replace(one) for one in found if one is not lost] for key, found in self.asked.items()}
        return KeyHistories(self.clock, kept)

    def _end(self, begun: AskedOperation) -> None:
        self.clock += 1
        begun.answered = self.clock
