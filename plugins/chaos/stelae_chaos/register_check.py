"""Checks the linearizability of every key of the registers.

The checker is that of the simulator (``stelae.sim.linearizability_checker``). It uses only the meaning of the
operations, no log. At the end of a run every key is read once more. So a lost acknowledged write makes the history of
its key impossible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from stelae.sim.history import ClientAction
from stelae.sim.linearizability_checker import LinearStep, OrderFinding, OrderVerdict, TimedCall, check
from stelae_chaos.operations import FINAL_CLIENT, ChaosFinding, ChaosOutcome, RegisterCall, shown

CHECK: Final = "registers"
SHOWN_MAX: Final = 12
"""The most operations that a finding shows."""

_FACTS: Final = {
    OrderVerdict.IMPOSSIBLE: "no order of the operations explains their answers",
    OrderVerdict.UNDECIDED: "the history is too long for the checker, which tried {} states",
}


def check_registers(calls: Iterable[RegisterCall]) -> list[ChaosFinding]:
    """Return a finding for every key whose history has no possible order, or is too long for the checker.

    The finding shows the last operations up to the place where the search got furthest."""
    by_key: dict[int, list[RegisterCall]] = {}
    for call in calls:
        if call.outcome is not ChaosOutcome.REFUSED:
            by_key.setdefault(call.key, []).append(call)
    found = []
    for key, history in sorted(by_key.items()):
        verdict = check([timed for call in history if (timed := _timed(call)) is not None])
        if verdict.verdict is not OrderVerdict.LINEARIZABLE:
            found.append(_finding(key, history, verdict))
    return found


def check_doubled(keys: Iterable[int]) -> list[ChaosFinding]:
    """Return a finding for every key of which a scan of the whole table returned several rows."""
    return [
        ChaosFinding(check=CHECK, key=f"key {key}", fact=f"the last scan returned {count} rows with this key")
        for key, count in sorted(Counter(keys).items())
        if count > 1
    ]


def last_reads(calls: Iterable[RegisterCall], rows: dict[int, str], begun_us: int, ended_us: int) -> list[RegisterCall]:
    """Return a scan of the whole table as a read of every key that was ever used, or that the scan found."""
    return [
        RegisterCall(
            client=FINAL_CLIENT,
            number=0,
            begun_us=begun_us,
            ended_us=ended_us,
            outcome=ChaosOutcome.DONE,
            action=ClientAction.READ,
            key=key,
            value=rows.get(key),
        )
        for key in sorted({call.key for call in calls} | rows.keys())
    ]


def _timed(call: RegisterCall) -> TimedCall | None:
    """Return an operation as the checker takes it; ``None``: it says nothing."""
    unknown = call.outcome is ChaosOutcome.UNKNOWN
    if unknown and call.action is ClientAction.READ:
        return None
    return TimedCall(
        name=call.name,
        invoked=call.begun_us,
        answered=None if unknown else call.ended_us,
        steps=(LinearStep(call.action, call.value, call.error or None if not unknown else None),),
        hint=(call.timestamp,) if call.timestamp else (),
    )


def _finding(key: int, history: list[RegisterCall], verdict: OrderFinding) -> ChaosFinding:
    until = max((call.begun_us for call in history if call.name in verdict.stuck), default=history[-1].begun_us)
    before = sorted((call for call in history if call.begun_us <= until), key=lambda call: call.begun_us)
    fact = _FACTS[verdict.verdict].format(verdict.tried)
    stuck = f"; stuck at {', '.join(verdict.stuck)}" if verdict.stuck else ""
    return ChaosFinding(check=CHECK, key=f"key {key}", fact=f"{fact}{stuck}", operations=shown(before[-SHOWN_MAX:]))
