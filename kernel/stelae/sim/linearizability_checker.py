"""Checks the linearizability of the operations on one key: is there an order in which a register behaves like this?

The search is that of Wing and Gong, with Lowe's cache of visited states. It takes operations one after the other. It
may take an operation only if no other untaken operation ended before it began. A set of taken operations that failed
with one state of the register is not tried again with that state. An operation with an unknown outcome may have taken
effect at any time since it began, or never. An operation that cannot change any state (a read, a refused write) is
taken as soon as it fits: if an order exists at all, one exists that takes it first. That does not hold for a write that
repeats the value of the present state: an order may need it later, to restore that value after another write.

The checker compares the answers of clients with the meaning of the operations. It does not trust the order of the log.
That order only provides hints, which decide what is tried first. Without hints, each write with an unknown outcome
doubles the number of states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from stelae.sim.history import ClientAction

TRIED_MAX: Final = 500_000
"""Limit on the visited states of one search. With unique values, a search of hundreds of operations visits about as
many states. The longest search in 1 200 runs visited 155 788 states, for 410 operations. A search that reaches the
limit counts as a violation."""

_ALREADY_PRESENT, _NOT_FOUND = "ALREADY_PRESENT", "NOT_FOUND"
_NEEDED: Final = {ClientAction.INSERT: False, ClientAction.UPDATE: True, ClientAction.DELETE: True}
"""Whether a row must exist for an action to succeed. Actions that are not listed always succeed."""


class LinearStep(NamedTuple):
    """What an operation does to the key with one of its rows, and the error in its answer (``None``: success)."""

    action: ClientAction
    value: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCall:
    """One operation on the key.

    Attributes:
        invoked: order of its start among all starts and ends of operations.
        answered: order of its end; ``None`` if its outcome and the errors of its steps are unknown.
        steps: one for each row; for a read one step, with the value that was read.
        hint: likely position of the operation among those with a hint; empty if unknown. A hint changes only which
            order is tried first, never the verdict.
    """

    name: str
    invoked: int
    answered: int | None
    steps: tuple[LinearStep, ...]
    hint: tuple[int, ...] = ()


class OrderVerdict(Enum):
    """The result of a search."""

    LINEARIZABLE = auto()
    IMPOSSIBLE = auto()
    UNDECIDED = auto()
    """The search reached its limit of states."""


@dataclass(frozen=True, slots=True)
class OrderFinding:
    """A verdict.

    Attributes:
        stuck: names of the operations that could not be taken where the search got furthest.
        tried: number of visited states.
    """

    verdict: OrderVerdict
    stuck: tuple[str, ...] = ()
    tried: int = 0


class _Search:
    """A depth-first search. ``mask`` has a bit for each operation that is taken."""

    def __init__(self, calls: Sequence[TimedCall]) -> None:
        ordered = sorted(calls, key=lambda call: call.invoked)
        self._known = [call for call in ordered if call.answered is not None]
        self._unknown = [call for call in ordered if call.answered is None]
        self._all_known = (1 << len(self._known)) - 1
        self._changing = [_can_change(call) for call in self._known]
        self._furthest = -1
        self.stuck: tuple[str, ...] = ()

    def run(self, tried_max: int) -> OrderFinding:
        """Search for an order."""
        seen: set[tuple[int, str | None]] = set()
        mask, state = self._settled(0, None)
        waiting = [self._choices(mask, state)]
        while mask & self._all_known != self._all_known:
            following = next(waiting[-1], None)
            if following is None:
                waiting.pop()
                if not waiting:
                    return OrderFinding(OrderVerdict.IMPOSSIBLE, self.stuck, len(seen))
                continue
            if following in seen:
                continue
            if len(seen) == tried_max:
                return OrderFinding(OrderVerdict.UNDECIDED, self.stuck, len(seen))
            seen.add(following)
            mask, state = following
            waiting.append(self._choices(mask, state))
        return OrderFinding(OrderVerdict.LINEARIZABLE, (), len(seen))

    def _settled(self, mask: int, state: str | None) -> tuple[int, str | None]:
        """Take all operations that fit and cannot change any state."""
        while True:
            for number, call in self._candidates(mask):
                if not self._changing[number] and _after(state, call)[0]:
                    mask |= 1 << number
                    break
            else:
                return mask, state

    def _choices(self, mask: int, state: str | None) -> Iterator[tuple[int, str | None]]:
        """Yield the next states to try: operations with a hint first, then those with an answer, then the others."""
        candidates = list(self._candidates(mask))
        self._remember(mask, [call for _, call in candidates])
        ends = min((call.answered for _, call in candidates if call.answered is not None), default=None)
        options = [(1 << number, call) for number, call in candidates]
        for offset, call in enumerate(self._unknown):
            bit = 1 << len(self._known) + offset
            if not mask & bit and (ends is None or call.invoked <= ends):
                options.append((bit, call))
        options.sort(key=lambda option: (not option[1].hint, option[1].hint))
        for bit, call in options:
            fits, after = _after(state, call)
            if fits and (call.answered is not None or after != state):
                yield self._settled(mask | bit, after)

    def _candidates(self, mask: int) -> Iterator[tuple[int, TimedCall]]:
        """Yield the answered operations not taken yet that began before any other of them ended."""
        untaken = ~mask & self._all_known
        first = (untaken & -untaken).bit_length() - 1 if untaken else len(self._known)
        ends: int | None = None
        for number in range(first, len(self._known)):
            if mask >> number & 1:
                continue
            call = self._known[number]
            if ends is not None and call.invoked > ends:
                return
            assert call.answered is not None
            ends = call.answered if ends is None else min(ends, call.answered)
            yield number, call

    def _remember(self, mask: int, candidates: Sequence[TimedCall]) -> None:
        taken = (mask & self._all_known).bit_count()
        if taken > self._furthest:
            self._furthest, self.stuck = taken, tuple(call.name for call in candidates)


def _can_change(call: TimedCall) -> bool:
    """Return whether a state exists in which an answered operation fits and changes that state."""
    return any(step.action is not ClientAction.READ and step.error is None for step in call.steps)


def _after(state: str | None, call: TimedCall) -> tuple[bool, str | None]:
    """Carry out an operation. Return whether its answer fits the state, and the state after it."""
    for step in call.steps:
        if step.action is ClientAction.READ:
            if step.value != state:
                return False, state
            continue
        needed = _NEEDED.get(step.action)
        refused = needed is not None and needed is (state is None)
        if call.answered is not None:
            expected = _ALREADY_PRESENT if needed is False else _NOT_FOUND
            if step.error != (expected if refused else None):
                return False, state
        if not refused:
            state = None if step.action is ClientAction.DELETE else step.value
    return True, state


def check(calls: Sequence[TimedCall], tried_max: int = TRIED_MAX) -> OrderFinding:
    """Return whether the operations on one key are linearizable. The key had no row at the start."""
    return _Search(calls).run(tried_max)
