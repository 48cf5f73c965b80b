"""A trace as a document of plain values, for JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from stelae.sim.trace.selection import SelectedTrace, kind_of


def trace_document(selected: SelectedTrace) -> dict[str, Any]:
    """Return the document that ``stelae sim show --json`` prints."""
    trace = selected.trace
    return {
        "seed": trace.result.seed,
        "violation": msgspec.to_builtins(trace.result.violation),
        "faults": msgspec.to_builtins(trace.faults),
        "nodes": trace.nodes,
        "healed_us": trace.healed_us,
        "virtual_us": trace.result.virtual_us,
        "from_us": selected.from_us,
        "to_us": selected.to_us,
        "left_out": {kind.value: count for kind, count in selected.left_out.items()},
        "records": [{"kind": kind_of(record).value, **msgspec.to_builtins(record)} for record in selected.records],
    }
