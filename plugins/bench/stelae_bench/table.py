"""Formats a report of ``stelae bench cluster`` as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stelae_bench.machine import python_of


def lines(document: Mapping[str, Any]) -> list[str]:
    """Return the lines to print. A part that was not measured has none."""
    machine = document["machine"]
    left_out = [f"{name} is left out: {why}" for name, why in document["left_out"].items()]
    return [
        *_writes(document),
        *_speeds(document),
        *_loops("point reads by full key", "mode", document["reads"]),
        *_loops("YCSB, 1 KB records", "workload", document["ycsb"]),
        f"machine        {machine['cpu_count']} cores, {machine['cpu_model']}, {python_of(machine)}",
        f"method         medians of {machine['rounds']} interleaved rounds of "
        f"{machine['settings']['round_seconds']:g} s, seed {machine['seed']}",
        *left_out,
        "",
        "ok" if document["ok"] else "NOT OK",
    ]


def _writes(document: Mapping[str, Any]) -> list[str]:
    if not document["writes"]:
        return []
    bare = document["bare"]
    rows = [(f"{row['in_flight']}", row) for row in document["writes"]]
    rows.append(("8 processes x 8", document["writes_8x8"]))
    return [
        "durable single-row writes, three nodes, one tablet, sync on",
        "",
        *aligned([("in flight", "writes/s", "(min - max)", "p50 ms", "p99 ms"), *(_loop(*row) for row in rows)]),
        "",
        f"bare disk      {bare['fdatasync_4k_us']:,.0f} us for 4 KiB with fdatasync",
        f"bare network   {bare['zmq_rtt_us']:,.0f} us for a ZeroMQ round trip",
        f"read back      {document['rows_read']:,} of {document['rows_acked']:,} acknowledged rows",
        "",
    ]


def _speeds(document: Mapping[str, Any]) -> list[str]:
    cells = []
    for name in ("bulk", "bulk_mixed"):
        if found := document[name]:
            what = f"bulk load, lineitem at scale {found['scale']:g}" if "scale" in found else "bulk load, mixed rows"
            cells.append((what, *_speed(found), f"{found['mb_per_s']:,.0f} MB/s", f"{found['rows']:,}"))
    if found := document["scan"]:
        share = f"{found['vs_parquet']:.0%} of Parquet"
        cells.append((f"scan of {found['table']}", *_speed(found), share, f"{found['rows']:,}"))
    if not cells:
        return []
    return [*aligned([("whole tables", "rows/s", "(min - max)", "", "rows"), *cells]), ""]


def _speed(found: Mapping[str, Any]) -> tuple[str, str]:
    return f"{found['rows_per_s']:,.0f}", f"({found['rows_per_s_min']:,.0f} - {found['rows_per_s_max']:,.0f})"


def _loops(title: str, what: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return []
    head = (what, "in flight", "ops/s", "(min - max)", "p50 ms", "p99 ms")
    cells = [(row[what], *_loop(str(row["in_flight"]), row)) for row in rows]
    return [title, "", *aligned([head, *cells]), ""]


def _loop(name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    low, high = row["ops_per_s_min"], row["ops_per_s_max"]
    speed = f"{row['ops_per_s']:,.0f}"
    return name, speed, f"({low:,.0f} - {high:,.0f})", f"{row['p50_ms']:.2f}", f"{row['p99_ms']:.2f}"


def aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines, with the first column aligned left and the others right."""
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
