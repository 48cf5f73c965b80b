"""A report as a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def lines(document: Mapping[str, Any]) -> list[str]:
    """Return the lines to print."""
    machine, bare = document["machine"], document["bare"]
    rows = [(f"{row['in_flight']}", row) for row in document["writes"]]
    rows.append(("8 processes x 8", document["writes_8x8"]))
    cells = [("in flight", "writes/s", "(min - max)", "p50 ms", "p99 ms")]
    for name, row in rows:
        low, high = row["ops_per_s_min"], row["ops_per_s_max"]
        cells.append(
            (
                name,
                f"{row['ops_per_s']:,.0f}",
                f"({low:,.0f} - {high:,.0f})",
                f"{row['p50_ms']:.2f}",
                f"{row['p99_ms']:.2f}",
            )
        )
    return [
        "durable single-row writes, three nodes, one tablet, sync on",
        "",
        *aligned(cells),
        "",
        f"bare disk      {bare['fdatasync_4k_us']:,.0f} us for 4 KiB with fdatasync",
        f"bare network   {bare['zmq_rtt_us']:,.0f} us for a ZeroMQ round trip",
        f"machine        {machine['cpu_count']} cores, {machine['cpu_model']}, Python {machine['python']}",
        f"method         medians of {machine['rounds']} interleaved rounds of "
        f"{machine['settings']['round_seconds']:g} s, seed {machine['seed']}",
        f"read back      {document['rows_read']:,} of {document['rows_acked']:,} acknowledged rows",
        "",
        "ok" if document["ok"] else "NOT OK",
    ]


def aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """Names to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
