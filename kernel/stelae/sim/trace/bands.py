"""The spans of time of a run: the role of each node, its type as a member, and the faults.

Spans are for a page that draws them. They cover the whole run, whatever records a filter selects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from stelae.sim.fault_plan import LEADER, Fault, FaultKind
from stelae.sim.trace.lifelines import LifelineState, lifelines
from stelae.sim.trace.record_text import fault_text
from stelae.sim.trace.records import ReplicaConfigChanged, RunTrace, TraceRecord

OUTSIDE: Final = "OUTSIDE"
"""The state of a node that is no member of the committed config."""


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """A span of time in which a node has one state. ``term`` is 0 for a state without a term."""

    node: int
    from_us: int
    to_us: int
    state: str
    term: int


class PlannedFaultSpan(msgspec.Struct, frozen=True, kw_only=True):
    """The span of time of a planned fault. ``node`` is ``None`` for a fault of all links."""

    number: int
    from_us: int
    to_us: int
    node: int | None
    text: str


def role_bands(trace: RunTrace) -> list[Band]:
    """Return the role of each node over the whole run, or that it is down or paused. In order of node and time."""
    changes: list[list[tuple[int, str, int]]] = [[(0, LifelineState.DOWN.value, 0)] for _ in range(trace.nodes)]
    for change in lifelines(trace.records):
        changes[change.node].append((change.at_us, str(change.state), change.term))
    return _bands(changes, trace.result.virtual_us)


def member_bands(trace: RunTrace) -> list[Band]:
    """Return the member type of each node over the whole run, or ``OUTSIDE``. In order of node and time.

    A config counts from the time at which the first replica knows that it is committed."""
    changes: list[list[tuple[int, str, int]]] = [[] for _ in range(trace.nodes)]
    for config in _committed_configs(trace.records):
        types = {member.node: member.member_type for member in config.members}
        for node, own in enumerate(changes):
            state = types.get(node, OUTSIDE)
            if not own or own[-1][1] != state:
                own.append((config.at_us, state, 0))
    return _bands(changes, trace.result.virtual_us)


def fault_spans(trace: RunTrace, roles: Sequence[Band]) -> list[PlannedFaultSpan]:
    """Return the spans of the faults that began before the end of all faults, in the order of the plan."""
    return [
        PlannedFaultSpan(
            number=fault.number,
            from_us=fault.at_us,
            to_us=min(fault.at_us + fault.duration_us, trace.healed_us),
            node=_victim(fault, roles, trace.nodes),
            text=fault_text(fault),
        )
        for fault in trace.faults
        if fault.at_us < trace.healed_us
    ]


def _bands(changes: Sequence[Sequence[tuple[int, str, int]]], end_us: int) -> list[Band]:
    found = []
    for node, own in enumerate(changes):
        ends = [at_us for at_us, _, _ in own[1:]] + [end_us]
        for (from_us, state, term), to_us in zip(own, ends, strict=False):
            if to_us > from_us:
                found.append(Band(node=node, from_us=from_us, to_us=to_us, state=state, term=term))
    return found


def _committed_configs(records: Sequence[TraceRecord]) -> Iterator[ReplicaConfigChanged]:
    """Yield each committed config once, when the first replica reports it. An older config never replaces a newer."""
    newest: ReplicaConfigChanged | None = None
    for record in records:
        if (
            isinstance(record, ReplicaConfigChanged)
            and record.committed
            and (newest is None or record.op_id > newest.op_id)
        ):
            newest = record
            yield record


def _victim(fault: Fault, roles: Sequence[Band], nodes: int) -> int | None:
    """Return the node that a fault strikes, chosen as the fault driver chooses it."""
    if fault.kind in (FaultKind.LOSSY, FaultKind.SLOW_LINKS):
        return None
    if fault.victim != LEADER:
        return fault.victim
    leaders = [(band.term, band.node) for band in roles if _leads(band, fault.at_us)]
    return max(leaders)[1] if leaders else fault.number % nodes


def _leads(band: Band, at_us: int) -> bool:
    return band.state == "LEADER" and band.from_us <= at_us < band.to_us
