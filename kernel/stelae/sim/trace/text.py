"""Renders a trace as text: one line for each event, one column for each node.

A message has a line where it is sent and a line where it arrives. Between two events, a mark in the column of a node
shows its state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from stelae.sim.trace.lifelines import LifelineState, lifelines
from stelae.sim.trace.record_text import fault_text, links_text, record_text
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
from stelae.sim.trace.selection import SelectedTrace

COLUMN: Final = 40
"""Characters of a column. A longer text continues over the columns to its right."""

MARKS: Final = {"LEADER": "#", "CANDIDATE": "?", LifelineState.DOWN.value: ".", LifelineState.PAUSED.value: "="}
LEGEND: Final = "# leader   ? candidate   | follower   = paused   . down   -> sent   <- arrived"


class TraceLine(NamedTuple):
    """One line of the trace. ``column`` is ``None`` for a line across all columns; clients have the last column."""

    at_us: int
    column: int | None
    text: str


def text_lines(selected: SelectedTrace) -> Iterator[str]:
    """Yield the lines of a trace: heading, events, and what was left out."""
    trace = selected.trace
    columns = [f"NODE {position}" for position in range(trace.nodes)]
    if TraceKind.CLIENT in selected.kinds:
        columns.append("CLIENTS")
    yield f"seed {trace.result.seed}, {selected.from_us / 1e6:.6f} s to {selected.to_us / 1e6:.6f} s"
    yield LEGEND
    yield ""
    yield f"{'TIME s':>11}  " + "".join(column.ljust(COLUMN) for column in columns).rstrip()
    marks = ["."] * trace.nodes
    changes = list(lifelines(trace.records))
    for moment in moments(selected):
        while changes and changes[0].at_us <= moment.at_us:
            change = changes.pop(0)
            marks[change.node] = MARKS.get(change.state, "|")
        if selected.from_us <= moment.at_us <= selected.to_us:
            yield _line(moment, marks)
    yield ""
    yield _left_out(selected)


def moments(selected: SelectedTrace) -> list[TraceLine]:
    """Return the lines of the selected records in order of time, with the times at which faults begin and end."""
    trace = selected.trace
    found: list[TraceLine] = []
    if TraceKind.FAULT in selected.kinds:
        begun = [fault for fault in trace.faults if fault.at_us < trace.healed_us]
        found += [TraceLine(fault.at_us, None, f"--- {fault_text(fault)}") for fault in begun]
        found.append(TraceLine(trace.healed_us, None, "--- all faults have ended"))
    for record in selected.records:
        found += _moments_of(record, trace)
    return sorted(found, key=lambda moment: moment.at_us)


def _moments_of(record: TraceRecord, trace: RunTrace) -> Iterator[TraceLine]:
    text = record_text(record, trace.nodes)
    match record:
        case MessageSent():
            yield from _message_moments(record, text, trace.nodes)
        case LinksChanged():
            yield TraceLine(record.at_us, links_text(record, trace.nodes)[0], text)
        case OperationBegun() | OperationAnswered():
            yield TraceLine(record.at_us, trace.nodes, text)
        case ViolationFound():
            yield TraceLine(record.at_us, None, f"*** {text}")
        case _:
            yield TraceLine(record.at_us, record.node, text)


def _message_moments(message: MessageSent, text: str, nodes: int) -> Iterator[TraceLine]:
    sender, receiver = _name(message.sender, nodes), _name(message.receiver, nodes)
    outcome = "" if message.arrived_us else "  LOST" if message.lost_us else "  still in flight at the end"
    yield TraceLine(message.at_us, min(message.sender, nodes), f"-> {receiver} {text}{outcome}")
    for number, at_us in enumerate(sorted(message.arrived_us)):
        again = "  DUPLICATE" if number else ""
        yield TraceLine(at_us, min(message.receiver, nodes), f"<- {sender} {text}{again}")


def _name(position: int, nodes: int) -> str:
    return str(position) if position < nodes else f"client {position - nodes}"


def _line(moment: TraceLine, marks: list[str]) -> str:
    time = f"{moment.at_us / 1e6:11.6f}  "
    if moment.column is None:
        return time + moment.text
    before = "".join(mark.ljust(COLUMN) for mark in marks[: moment.column])
    if moment.column >= len(marks):
        return time + before + moment.text
    after = "".join(mark.ljust(COLUMN) for mark in marks[moment.column + 1 :])
    own = f"{marks[moment.column]} {moment.text}"
    # A text longer than its column covers the marks to its right.
    padded = own.ljust(COLUMN) if len(own) < COLUMN else f"{own} "
    covered = len(padded) - COLUMN
    return (time + before + padded + after[covered:]).rstrip()


def _left_out(selected: SelectedTrace) -> str:
    shown = f"{len(selected.records)} records shown"
    if not selected.left_out:
        return f"{shown}, none left out"
    counts = ", ".join(f"{count} {kind}" for kind, count in selected.left_out.items())
    return f"{shown}; left out: {counts}. Choose with --from, --to, --node and --only KIND,KIND or --only all"
