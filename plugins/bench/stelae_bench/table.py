"""Formats a report of ``stelae bench cluster`` as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stelae_bench.machine import python_of


def lines(document: Mapping[str, Any]) -> list[str]:
    """Return the lines to print. A part that was not measured has none."""
    machine = document["machine"]
    peers = [*document["peers"]]
    left_out = [f"{name} is left out: {why}" for name, why in document["left_out"].items()]
    failed = [f"peer {name} failed in {one['failure']}" for name, one in document["peers"].items() if one["failure"]]
    return [
        *_writes(document),
        *_speeds(document),
        *_loops(_reads_title(document["reads"]), "mode", document["reads"], peers),
        *_loops("YCSB, 1 KB records", "workload", document["ycsb"], peers),
        *_retries(document),
        f"machine        {machine['cpu_count']} cores, {machine['cpu_model']}, {python_of(machine)}",
        f"method         medians of {machine['rounds']} interleaved rounds of "
        f"{machine['settings']['round_seconds']:g} s, seed {machine['seed']}",
        *left_out,
        *failed,
        "",
        "ok" if document["ok"] else "NOT OK",
    ]


def _writes(document: Mapping[str, Any]) -> list[str]:
    if not document["writes"]:
        return []
    bare, eight = document["bare"], document["writes_8x8"]
    rows = [((f"{row['in_flight']}",), row) for row in document["writes"]]
    rows.append((("8 processes x 8",), eight))
    low, high = eight["vs_one_process_min"], eight["vs_one_process_max"]
    return [
        "durable single-row writes, three nodes, one tablet, sync on",
        "",
        *_loads(("in flight", "writes/s"), rows, [*document["peers"]]),
        "",
        f"8 processes    {eight['vs_one_process']:.0%} of one process with 64 in flight ({low:.0%} - {high:.0%})",
        f"bare disk      {bare['fdatasync_4k_us']:,.0f} us for 4 KiB with fdatasync",
        f"bare network   {bare['zmq_rtt_us']:,.0f} us for a ZeroMQ round trip",
        f"read back      {document['rows_read']:,} of {document['rows_acked']:,} acknowledged rows",
        "",
    ]


def _reads_title(rows: Sequence[Mapping[str, Any]]) -> str:
    return f"point reads by full key, over {rows[0]['rows']:,} rows" if rows else ""


def _retries(document: Mapping[str, Any]) -> list[str]:
    counts = document["retries"]
    codes = ", ".join(f"{count:,} {code}" for code, count in sorted(counts.items()))
    return [f"retries        {sum(counts.values()):,} operations were sent again: {codes}"] if counts else []


def _speeds(document: Mapping[str, Any]) -> list[str]:
    cells = []
    for name in ("bulk", "bulk_mixed"):
        if found := document[name]:
            what = f"bulk load, lineitem at scale {found['scale']:g}" if "scale" in found else "bulk load, mixed rows"
            cells.append((what, *_speed(found), f"{found['mb_per_s']:,.0f} MB/s"))
    for name in ("scan_unflushed", "scan_flushed"):
        if found := document[name]:
            low, high = found["vs_parquet_min"], found["vs_parquet_max"]
            share = f"{found['vs_parquet']:.0%} of Parquet ({low:.0%} - {high:.0%})"
            cells.append((f"scan of {found['table']}, {name.removeprefix('scan_')}", *_speed(found), share))
    if not cells:
        return []
    return [*aligned([("whole tables", "rows", "rows/s", "(min - max)", "us of CPU", ""), *cells]), ""]


def _speed(found: Mapping[str, Any]) -> tuple[str, ...]:
    spread = f"({found['rows_per_s_min']:,.0f} - {found['rows_per_s_max']:,.0f})"
    return f"{found['rows']:,}", f"{found['rows_per_s']:,.0f}", spread, _figure(found["cpu_us_per_op"], ".2f")


def _loops(title: str, what: str, rows: Sequence[Mapping[str, Any]], peers: Sequence[str]) -> list[str]:
    if not rows:
        return []
    named = [((str(row[what]), str(row["in_flight"])), row) for row in rows]
    return [title, "", *_loads((what, "in flight", "ops/s"), named, peers), ""]


def _loads(
    head: Sequence[str], rows: Sequence[tuple[Sequence[str], Mapping[str, Any]]], peers: Sequence[str]
) -> list[str]:
    """Return the lines of loads: speed and latency, what an operation costs, and the peers.

    The three processor times in brackets are those of clients, leader and followers."""
    costs = ("us of CPU", "(client + leader + followers)", "switches", "ops/entry")
    beside = [cell for name in peers for cell in (f"{name}/s", f"x {name}")]
    return aligned(
        [
            (*head, "(min - max)", "p50 ms", "p99 ms", *costs, *beside),
            *((*names, *_loop(row), *_cost(row), *_beside(row, peers)) for names, row in rows),
        ]
    )


def _loop(row: Mapping[str, Any]) -> tuple[str, ...]:
    low, high = row["ops_per_s_min"], row["ops_per_s_max"]
    speed = f"{row['ops_per_s']:,.0f}"
    return speed, f"({low:,.0f} - {high:,.0f})", f"{row['p50_ms']:.2f}", f"{row['p99_ms']:.2f}"


def _cost(row: Mapping[str, Any]) -> tuple[str, ...]:
    parts = [_figure(row[f"{who}_cpu_us_per_op"], ",.0f") for who in ("client", "leader", "followers")]
    switches, shared = _figure(row["switches_per_op"], ",.2f"), _figure(row["ops_per_entry"], ",.1f")
    return _figure(row["cpu_us_per_op"], ",.0f"), f"({' + '.join(parts)})", switches, shared


def _beside(row: Mapping[str, Any], peers: Sequence[str]) -> list[str]:
    cells = []
    for name in peers:
        found = row.get("peers", {}).get(name, {})
        cells += [_figure(found.get("ops_per_s"), ",.0f"), _figure(found.get("vs_ops_per_s"), ".2f")]
    return cells


def _figure(value: float | None, how: str) -> str:
    """Return a figure as text; one that is not known is a dash."""
    return "-" if value is None else format(value, how)


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
