"""A checker of linearizability for one key: is there an order in which a register could have done all this?

The method is that of Wing and Gong, with Lowe's memory of what was tried: operations are taken one after the other,
each only while no other has ended before it began, and a set of taken operations that led nowhere with one state of the
register is not tried again with it. An operation whose outcome nobody learnt may have taken effect at any time since
it began, or never. What is seen to fit and changes nothing (a read, a refused write) is taken at once: if there is an
order at all, there is one with it first.

It judges what clients were told, against what the operations mean. The order of the log is no evidence here: it comes
in as hints, which say what to try first. Without them, each write of unknown outcome doubles what there is to try."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from stelae.sim.history import ClientAction

TRIED_MAX: Final = 500_000
"""States of one search: with values that are never repeated, hundreds of operations need about as many. Of 1 200
runs one needed 155 788, for 410 operations; a search that is given up counts as a violation."""

_ALREADY_PRESENT, _NOT_FOUND = "ALREADY_PRESENT", "NOT_FOUND"
_NEEDED: Final = {ClientAction.INSERT: False, ClientAction.UPDATE: True, ClientAction.DELETE: True}
"""Whether there must be a row for an action to be taken; others are always."""


class LinearStep(NamedTuple):
    """What an operation does to the key with one of its rows, and the error it was told (``None``: taken)."""

    action: ClientAction
    value: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCall:
    """One operation on the key.

    Attributes:
        invoked: order of its beginning among all beginnings and ends.
        answered: order of its end; ``None``: nobody knows its outcome, and errors of its steps are not known.
        steps: of a read one step, whose value was read.
        hint: where the operation is likely to belong among those with a hint; empty: no idea. A hint changes which
            order is tried first, and never the verdict.
    """

    name: str
    invoked: int
    answered: int | None
    steps: tuple[LinearStep, ...]
    hint: tuple[int, ...] = ()


class OrderVerdict(Enum):
    """What a search found."""

    LINEARIZABLE = auto()
    IMPOSSIBLE = auto()
    UNDECIDED = auto()
    """The search was given up at its bound."""


@dataclass(frozen=True, slots=True)
class OrderFinding:
    """A verdict; ``stuck``: what could not be taken where the search got furthest; ``tried``: states gone through."""

    verdict: OrderVerdict
    stuck: tuple[str, ...] = ()
    tried: int = 0


class _Search:
    """Depth first; ``mask`` has a bit for each operation that was taken."""

    def __init__(self, calls: Sequence[TimedCall]) -> None:
        ordered = sorted(calls, key=lambda call: call.invoked)
        self._known = [call for call in ordered if call.answered is not None]
        self._unknown = [call for call in ordered if call.answered is None]
        self._all_known = (1 << len(self._known)) - 1
        self._furthest = -1
        self.stuck: tuple[str, ...] = ()

    def run(self, tried_max: int) -> OrderFinding:
        """Look for an order."""
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
        """Take all that fits and changes nothing."""
        while True:
            for number, call in self._candidates(mask):
                fits, after = _after(state, call)
                if fits and after == state:
                    mask |= 1 << number
                    break
            else:
                return mask, state

    def _choices(self, mask: int, state: str | None) -> Iterator[tuple[int, str | None]]:
        """What may come next, in the order in which it is tried: by hint, then what has an answer, then the others."""
        candidates = list(self._candidates(mask))
        self._remember(mask, [call for _, call in candidates])
        ends = min((call.answered for _, call in candidates if call.answered is not None), default=None)
        options = [(1 << number, call) for number, call in candidates]
        for place, call in enumerate(self._unknown):
            bit = 1 << len(self._known) + place
            if not mask & bit and (ends is None or call.invoked <= ends):
                options.append((bit, call))
        options.sort(key=lambda option: (not option[1].hint, option[1].hint))
        for bit, call in options:
            fits, after = _after(state, call)
            if fits and (call.answered is not None or after != state):
                yield self._settled(mask | bit, after)

    def _candidates(self, mask: int) -> Iterator[tuple[int, TimedCall]]:
        """Answered operations not taken yet that began before any other of these ended."""
        untaken = ~mask & self._all_known
        number = (untaken & -untaken).bit_length() - 1 if untaken else len(self._known)
        ends: int | None = None
        for place in range(number, len(self._known)):
            if mask >> place & 1:
                continue
            call = self._known[place]
            if ends is not None and call.invoked > ends:
                return
            assert call.answered is not None
            ends = call.answered if ends is None else min(ends, call.answered)
            yield place, call

    def _remember(self, mask: int, candidates: Sequence[TimedCall]) -> None:
        taken = (mask & self._all_known).bit_count()
        if taken > self._furthest:
            self._furthest, self.stuck = taken, tuple(call.name for call in candidates)


def _after(state: str | None, call: TimedCall) -> tuple[bool, str | None]:
    """Do an operation: whether what it was told fits the state, and the state after it."""
    for step in call.steps:
        if step.action is ClientAction.READ:
            if step.value != state:
                return False, state
            continue
        needed = _NEEDED.get(step.action)
        refused = needed is not None and needed is (state is None)
        if call.answered is not None:
            told = _ALREADY_PRESENT if needed is False else _NOT_FOUND
            if step.error != (told if refused else None):
                return False, state
        if not refused:
            state = None if step.action is ClientAction.DELETE else step.value
    return True, state


def check(calls: Sequence[TimedCall], tried_max: int = TRIED_MAX) -> OrderFinding:
    """Say whether the operations on one key, which began without a row, are linearizable."""
    return _Search(calls).run(tried_max)
