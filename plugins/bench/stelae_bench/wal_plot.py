"""A picture of a report of the log engines: entries per second and latency, one row for each mode and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stelae.spi.extras import require
from stelae_bench.machine import python_of
from stelae_bench.plot import BadPlotFile
from stelae_bench.wal_cases import Case
from stelae_bench.wal_table import case_of, participants

_WIDTH_IN, _ROW_IN, _TITLE_IN, _DPI = 13.0, 3.4, 1.1, 130
_LEGEND_COLUMNS = 8
"""So many names stand beside each other; more would be wider than the picture."""
_SPREAD = 0.72
"""Share of a case's width over which its participants stand side by side."""

_STYLES = {
    "segmented": ("#0072b2", "o"),
    "lmdb": ("#009e73", "o"),
    "shared": ("#d55e00", "o"),
    "crc_queued": ("#56b4e9", "X"),
    "raw": ("#000000", "D"),
    "raw_written": ("#4d4d4d", "D"),
    "raw_crc": ("#8a8a8a", "D"),
    "rocksdb": ("#cc79a7", "s"),
    "sqlite": ("#e0a100", "s"),
}
"""Colours that also the colour-blind tell apart; shapes: ours, their ceiling, bare loops, databases."""

_MORE_STYLES = (("#f0e442", "^"), ("#882255", "^"), ("#44aa99", "v"), ("#999933", "v"))
"""For engines of others, in turn."""


def draw(document: Mapping[str, Any], path: Path) -> None:
    """Draw a report's document; the ending of ``path`` says in which format.

    Raises:
        BadPlotFile: it cannot be written.
    """
    try:
        figure_of(document).savefig(path, dpi=_DPI)
    except OSError as error:
        raise BadPlotFile(f"--plot {path} cannot be written: {error}") from error


def figure_of(document: Mapping[str, Any]) -> Any:
    """The figure of a report's document: what it shows and the legend stand above the axes."""
    rows = document["rows"]
    sizes = list(dict.fromkeys((row["sync"], row["entry_bytes"]) for row in rows))
    figure = require("matplotlib.figure", extra="bench", wanted_by="--plot").Figure(
        figsize=(_WIDTH_IN, _TITLE_IN + _ROW_IN * len(sizes)), layout="constrained"
    )
    places = figure.subplots(len(sizes), 2, squeeze=False)
    for (throughput, latency), (sync, size) in zip(places, sizes, strict=True):
        of_size = [row for row in rows if (row["sync"], row["entry_bytes"]) == (sync, size)]
        mode = f"sync {sync}"
        _points(throughput, of_size, "entries_per_s", f"Entries of {_size(size)} per second, {mode}")
        _points(latency, of_size, "p50_us", f"Latency of an entry of {_size(size)}, p50, us, {mode}")
    handles, labels = places[0][0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        title=_title(document["machine"]),
        loc="outside upper center",
        ncols=min(len(labels), _LEGEND_COLUMNS),
        frameon=False,
    )
    return figure


def _points(axes: Any, rows: Sequence[Mapping[str, Any]], name: str, title: str) -> None:
    cases = list(dict.fromkeys(case_of(row) for row in rows))
    names = participants(rows)
    more = [name for name in names if name not in _STYLES]
    for number, participant in enumerate(names):
        shift = _SPREAD * ((number + 0.5) / len(names) - 0.5)
        own = [row for row in rows if row["engine"] == participant]
        values = [row[name] for row in own]
        below = [row[name] - row[f"{name}_min"] for row in own]
        above = [row[f"{name}_max"] - row[name] for row in own]
        colour, marker = _STYLES.get(participant) or _MORE_STYLES[more.index(participant) % len(_MORE_STYLES)]
        axes.errorbar(
            [cases.index(case_of(row)) + shift for row in own],
            values,
            yerr=[below, above],
            color=colour,
            marker=marker,
            markersize=5,
            capsize=2,
            elinewidth=1,
            linestyle="none",
            label=participant,
        )
    for edge in range(1, len(cases)):
        axes.axvline(edge - 0.5, color="#cccccc", linewidth=0.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xticks(range(len(cases)), [_load(case) for case in cases])
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)


def _load(case: Case) -> str:
    if case.tablets == 1:
        return f"{case.in_flight} in flight"
    return f"{case.in_flight} each on\n{case.tablets} tablets"


def _size(entry_bytes: int) -> str:
    return f"{entry_bytes >> 10} KiB" if entry_bytes >= 1024 else f"{entry_bytes} B"


def _title(machine: Mapping[str, Any]) -> str:
    return (
        f"Log engines behind the kernel's writer: {machine['cpu_count']} cores, "
        f"{machine['cpu_model']}; {python_of(machine)}; "
        f"medians of {machine['rounds']} rounds, whiskers from the least to the most"
    )
