"""Formats a report of ``stelae bench copy`` as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stelae_bench.machine import python_of
from stelae_bench.table import aligned


def lines(document: Mapping[str, Any]) -> list[str]:
    """Return the lines to print. A part that was not measured has none."""
    machine = document["machine"]
    return [
        *_speed(document["speed"]),
        *_writes(document["writes"]),
        *_resume(document["resume"]),
        *_tablets(document["tablets"]),
        f"machine        {machine['cpu_count']} cores, {machine['cpu_model']}, {python_of(machine)}",
        f"method         medians of {machine['rounds']} interleaved rounds, seed {machine['seed']}",
        "",
        "ok" if document["ok"] else "NOT OK",
    ]


def _speed(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return []
    head = ("copy to a new server", "MB/s", "(min - max)", "of cp", "source CPU s", "target CPU s")
    rows = [
        (name, *_rate(found[key]), f"{found[key]['vs_cp']:.0%}", *_cpu(found[key]))
        for name, key in (("from one source", "one_source"), ("two halves, from two sources", "two_sources"))
    ]
    rows.append(("cp and sync of the files", *_rate(found["cp"]), "", "", ""))
    aim = f"aim            {found['aim_vs_cp']:.0%} of cp and sync: {_reached(found)}"
    return [f"{found['one_source']['bytes'] / 1e6:,.0f} MB", "", *aligned([head, *rows]), "", aim, ""]


def _writes(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return []
    head = ("writes, 64 in flight", "writes/s", "(min - max)", "p50 ms", "p99 ms")
    rows = [
        (name, *_spread(found[key], "ops_per_s"), f"{found[key]['p50_ms']:.2f}", f"{found[key]['p99_ms']:.2f}")
        for name, key in (("alone", "alone"), ("beside a copy", "beside_copy"))
    ]
    return [
        *aligned([head, *rows]),
        "",
        f"kept           {found['kept']:.0%} ({found['kept_min']:.0%} - {found['kept_max']:.0%}); "
        f"aim {found['aim_kept']:.0%}: {_reached(found)}",
        f"the copy       {found['copy']['mb_per_s']:,.0f} MB/s",
        "",
    ]


def _resume(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return []
    head = ("interrupted copy, MB", "tablet", "stored before", "moved in all", "moved twice")
    rows = [
        (
            name.replace("_", " "),
            *(f"{one[key] / 1e6:,.1f}" for key in ("bytes", "bytes_stored", "bytes_moved")),
            f"{one['bytes_twice'] / 1e6:,.1f} ({one['share_twice']:.1%})",
        )
        for name, one in found.items()
    ]
    return [*aligned([head, *rows]), ""]


def _tablets(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return []
    cpu = (f"{who} {_seconds(found[f'{who}_cpu_s'], 1)} s" for who in ("source", "target", "master"))
    return [
        f"empty tablets  {found['tablets']:,} moved in {found['seconds']:,.1f} s: {found['tablets_per_s']:,.1f} a "
        f"second; aim {found['aim_tablets_per_s']:g}: {_reached(found)}",
        f"CPU            {', '.join(cpu)}",
        "",
    ]


def _rate(found: Mapping[str, Any]) -> tuple[str, str]:
    return _spread(found, "mb_per_s")


def _spread(found: Mapping[str, Any], name: str) -> tuple[str, str]:
    return f"{found[name]:,.0f}", f"({found[f'{name}_min']:,.0f} - {found[f'{name}_max']:,.0f})"


def _cpu(found: Mapping[str, Any]) -> tuple[str, str]:
    return _seconds(found["source_cpu_s"], 2), _seconds(found["target_cpu_s"], 2)


def _seconds(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _reached(found: Mapping[str, Any]) -> str:
    return "reached" if found["aim_reached"] else "NOT reached"
