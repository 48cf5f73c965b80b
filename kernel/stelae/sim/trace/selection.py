"""Selects the records of a trace: by kind, node and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from stelae.sim.trace.records import (
    CommitIndexRaised,
    LinksChanged,
    LogWritten,
    MessageSent,
    NodeChanged,
    NodeStarted,
    OperationAnswered,
    OperationBegun,
    ReplicaAppliedEntry,
    ReplicaConfigChanged,
    RoleChanged,
    RunTrace,
    TermSaved,
    TraceKind,
    TraceRecord,
    ViolationFound,
)

ELECTIONS: Final = frozenset(
    {
        TraceKind.VIOLATION,
        TraceKind.FAULT,
        TraceKind.ROLE,
        TraceKind.VOTE,
        TraceKind.TERM,
        TraceKind.TRUNCATE,
        TraceKind.REFUSAL,
        TraceKind.MESSAGE,
        TraceKind.CONFIG,
    }
)
"""Kinds that are always shown unless others are chosen: faults, elections, changes of members, and logs that differ."""

REPLICATION: Final = ELECTIONS | {TraceKind.APPEND, TraceKind.PERSIST, TraceKind.COMMIT}
"""Kinds that are shown in addition if they are few: how entries are replicated."""

RECORDS_MAX: Final = 250
"""With more records than that, the kinds of replication are left out unless they are chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFilter:
    """What to show of a trace.

    Attributes:
        from_us, to_us: first and last time; ``None`` for the start or the end of the run.
        nodes: positions of nodes; empty for all. A message belongs to its sender and its receiver.
        kinds: kinds of records; ``None`` for a default that depends on the number of records.
    """

    from_us: int = 0
    to_us: int | None = None
    nodes: frozenset[int] = frozenset()
    kinds: frozenset[TraceKind] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedTrace:
    """The selected records of a trace, in order of time.

    Attributes:
        kinds: the kinds of the selected records.
        left_out: number of records of the other kinds, of the same nodes and in the same time.
    """

    trace: RunTrace
    from_us: int
    to_us: int
    kinds: frozenset[TraceKind]
    records: tuple[TraceRecord, ...]
    left_out: dict[TraceKind, int]


def select(trace: RunTrace, wanted: TraceFilter) -> SelectedTrace:
    """Return the records of a trace that a filter selects."""
    to_us = trace.result.virtual_us if wanted.to_us is None else wanted.to_us
    found = [
        record
        for record in trace.records
        if _overlaps(record, wanted.from_us, to_us) and _is_of(record, wanted.nodes, trace.nodes)
    ]
    kinds = wanted.kinds if wanted.kinds is not None else _default_kinds(found)
    left_out = Counter(kind for record in found if (kind := kind_of(record)) not in kinds)
    return SelectedTrace(
        trace=trace,
        from_us=wanted.from_us,
        to_us=to_us,
        kinds=kinds,
        records=tuple(record for record in found if kind_of(record) in kinds),
        left_out=dict(left_out.most_common()),
    )


def kind_of(record: TraceRecord) -> TraceKind:
    """Return the kind of a record."""
    match record:
        case MessageSent():
            return record.kind
        case NodeStarted() | NodeChanged() | LinksChanged():
            return TraceKind.FAULT
        case RoleChanged():
            return TraceKind.ROLE
        case TermSaved():
            return TraceKind.TERM
        case LogWritten():
            changed = record.error or record.replace_from is not None
            return TraceKind.TRUNCATE if changed else TraceKind.PERSIST
        case CommitIndexRaised():
            return TraceKind.COMMIT
        case ReplicaConfigChanged():
            return TraceKind.CONFIG
        case ReplicaAppliedEntry():
            return TraceKind.APPLY
        case OperationBegun() | OperationAnswered():
            return TraceKind.CLIENT
        case ViolationFound():
            return TraceKind.VIOLATION
        case _:
            assert_never(record)


def nodes_of(record: TraceRecord) -> tuple[int, ...]:
    """Return the positions that a record concerns; none for all."""
    match record:
        case MessageSent():
            return record.sender, record.receiver
        case LinksChanged():
            return tuple(sorted({node for link in record.links for node in link}))
        case OperationBegun() | ViolationFound():
            return ()
        case _:
            return (record.node,)


def _default_kinds(records: Sequence[TraceRecord]) -> frozenset[TraceKind]:
    counts = Counter(kind_of(record) for record in records)
    return REPLICATION if sum(counts[kind] for kind in REPLICATION) <= RECORDS_MAX else ELECTIONS


def _overlaps(record: TraceRecord, from_us: int, to_us: int) -> bool:
    ends: Iterable[int] = (*record.arrived_us, *record.lost_us) if isinstance(record, MessageSent) else ()
    return record.at_us <= to_us and max(ends, default=record.at_us) >= from_us


def _is_of(record: TraceRecord, wanted: frozenset[int], nodes: int) -> bool:
    of = nodes_of(record)
    return not wanted or not of or any(node in wanted for node in of)
