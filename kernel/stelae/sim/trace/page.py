"""The view model of the page of a trace: what the page shows, as plain values, before any HTML."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

import msgspec

from stelae.sim.trace.bands import Band, PlannedFaultSpan, fault_spans, member_bands, role_bands
from stelae.sim.trace.record_text import links_text, record_text
from stelae.sim.trace.records import (
    LinksChanged,
    MessageSent,
    OperationAnswered,
    OperationBegun,
    RunTrace,
    TraceKind,
    TraceRecord,
    ViolationFound,
)
from stelae.sim.trace.selection import SelectedTrace, TraceFilter, kind_of, select

PAGE_RECORDS_MAX: Final = 25_000
"""The most records of a page, unless the kinds are chosen. A browser filters and draws this number without delay."""

LEAVE_OUT_FIRST: Final = (
    TraceKind.HEARTBEAT,
    TraceKind.PROBE,
    TraceKind.REPLY,
    TraceKind.CLIENT,
    TraceKind.APPLY,
    TraceKind.PERSIST,
    TraceKind.COMMIT,
    TraceKind.APPEND,
)
"""The kinds that a page with too many records leaves out, the least telling first."""


class PageRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record as the page draws it.

    Attributes:
        lane: the lane of the record, or of the sender of a message; ``None`` for a record of the whole run. The lane of
            clients follows those of the nodes.
        to_lane: the lane of the receiver of a message.
        arrived_us, lost_us: as in ``MessageSent``.
    """

    kind: TraceKind
    at_us: int
    text: str
    lane: int | None = None
    to_lane: int | None = None
    arrived_us: tuple[int, ...] = ()
    lost_us: tuple[int, ...] = ()


class TracePage(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a page.

    Attributes:
        profile: the kind of the run.
        command: the command that repeats the run.
        verdict: the violation, or that there is none.
        violation_us: time of the violation; ``None`` without one.
        lanes: name of each lane, from left to right.
        members: spans of member types; empty if all nodes are voters during the whole run.
        kinds: number of records of each kind in the page.
        shown: the kinds that are drawn at first.
        left_out: number of records of the kinds that are not in the page.
    """

    seed: int
    profile: str
    command: str
    verdict: str
    violation_us: int | None
    from_us: int
    to_us: int
    lanes: tuple[str, ...]
    roles: list[Band]
    members: list[Band]
    faults: list[PlannedFaultSpan]
    kinds: dict[TraceKind, int]
    shown: list[TraceKind]
    left_out: dict[TraceKind, int]
    records: list[PageRecord]


def trace_page(trace: RunTrace, wanted: TraceFilter, command: str) -> TracePage:
    """Return the page of a trace.

    Args:
        wanted: time, nodes and kinds of the page. Without kinds, the page has as many kinds as a browser can handle. It
            draws those at first that the trace as text has.
        command: the command that repeats the run.
    """
    selected = select_for_page(trace, wanted)
    violation = trace.result.violation
    roles, members = role_bands(trace), member_bands(trace)
    counts = Counter(kind_of(record) for record in selected.records)
    shown = select(trace, wanted).kinds
    return TracePage(
        seed=trace.result.seed,
        profile=trace.result.kind.value,
        command=command,
        verdict="no violation" if violation is None else f"{violation.invariant} is violated: {violation.detail}",
        violation_us=None if violation is None else violation.at_us,
        from_us=selected.from_us,
        to_us=selected.to_us,
        lanes=(*(f"node {node}" for node in range(trace.nodes)), "clients"),
        roles=roles,
        members=members if any(band.state != "VOTER" for band in members) else [],
        faults=[span for span in fault_spans(trace, roles) if _overlaps(span, selected)],
        kinds={kind: counts[kind] for kind in TraceKind if counts[kind]},
        shown=[kind for kind in TraceKind if kind in shown and kind in counts],
        left_out=selected.left_out,
        records=[_page_record(record, trace.nodes) for record in selected.records],
    )


def select_for_page(trace: RunTrace, wanted: TraceFilter, records_max: int = PAGE_RECORDS_MAX) -> SelectedTrace:
    """Return the records of a page: those of the chosen kinds, or of as many kinds as fit into ``records_max``."""
    if wanted.kinds is not None:
        return select(trace, wanted)
    kinds = set(TraceKind)
    selected = select(trace, replace(wanted, kinds=frozenset(kinds)))
    excess = len(selected.records) - records_max
    counts = Counter(kind_of(record) for record in selected.records)
    for kind in LEAVE_OUT_FIRST:
        if excess <= 0:
            break
        kinds.discard(kind)
        excess -= counts[kind]
    return select(trace, replace(wanted, kinds=frozenset(kinds)))


def _overlaps(span: PlannedFaultSpan, selected: SelectedTrace) -> bool:
    return span.from_us <= selected.to_us and span.to_us >= selected.from_us


def _page_record(record: TraceRecord, nodes: int) -> PageRecord:
    kind, text = kind_of(record), record_text(record, nodes)
    match record:
        case MessageSent():
            return PageRecord(
                kind=kind,
                at_us=record.at_us,
                text=text,
                lane=min(record.sender, nodes),
                to_lane=min(record.receiver, nodes),
                arrived_us=tuple(record.arrived_us),
                lost_us=tuple(record.lost_us),
            )
        case ViolationFound():
            return PageRecord(kind=kind, at_us=record.at_us, text=text)
        case OperationBegun() | OperationAnswered():
            return PageRecord(kind=kind, at_us=record.at_us, text=text, lane=nodes)
        case LinksChanged():
            return PageRecord(kind=kind, at_us=record.at_us, text=text, lane=links_text(record, nodes)[0])
        case _:
            return PageRecord(kind=kind, at_us=record.at_us, text=text, lane=record.node)
