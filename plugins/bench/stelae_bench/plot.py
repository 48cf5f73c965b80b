"""Plots a report of ``stelae bench cluster``: throughput and latency over the number of writes in flight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stelae.spi.errors import CallerError
from stelae.spi.extras import require
from stelae_bench.machine import python_of

SUFFIXES = (".png", ".svg")
_WIDTH_IN, _HEIGHT_IN, _DPI = 10.0, 4.6, 130


class BadPlotFile(CallerError):
    """The plot cannot be written to the given file."""

    code = "BAD_PLOT_FILE"


def check(path: Path) -> None:
    """Check, before anything is measured, that the plot can be drawn and written.

    Raises:
        MissingExtra: matplotlib is not installed.
        BadPlotFile: the path is not that of a PNG or SVG file in an existing folder.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise BadPlotFile(f"--plot {path}: the name must end in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise BadPlotFile(f"--plot {path}: folder {path.parent} does not exist; create it first")
    require("matplotlib", extra="bench", wanted_by="--plot")


def save(figure: Any, path: Path) -> None:
    """Write a figure as PNG and as SVG. ``path`` is one of the files; the other is beside it.

    Raises:
        BadPlotFile: a file cannot be written.
    """
    try:
        for suffix in SUFFIXES:
            figure.savefig(path if path.suffix.lower() == suffix else path.with_suffix(suffix), dpi=_DPI)
    except OSError as error:
        raise BadPlotFile(f"--plot {path} cannot be written: {error}") from error


def draw(document: Mapping[str, Any], path: Path) -> None:
    """Plot a report's document, as PNG and as SVG.

    Raises:
        BadPlotFile: a file cannot be written.
    """
    figure = require("matplotlib.figure", extra="bench", wanted_by="--plot").Figure(
        figsize=(_WIDTH_IN, _HEIGHT_IN), layout="constrained"
    )
    throughput, latency = figure.subplots(1, 2)
    rows = [*document["writes"], document["writes_8x8"]]
    names = [str(row["in_flight"]) for row in document["writes"]] + ["8 x 8"]
    _throughput(throughput, names, rows)
    _latency(latency, names, rows)
    figure.suptitle(_title(document["machine"]), fontsize=10)
    save(figure, path)


def _throughput(axes: Any, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    values = [row["ops_per_s"] for row in rows]
    bars = axes.bar(names, values, yerr=_whiskers(rows, "ops_per_s"), capsize=4, color="#4878a8", width=0.6)
    axes.bar_label(bars, [f"{value:,.0f}" for value in values], padding=4, fontsize=9)
    axes.set_title("Durable single-row writes per second")
    axes.set_xlabel("writes in flight (8 x 8: eight client processes)")
    axes.margins(y=0.12)
    _bare_frame(axes)


def _latency(axes: Any, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    for figure, colour, marker in (("p50_ms", "#4878a8", "o"), ("p99_ms", "#c8553d", "s")):
        values = [row[figure] for row in rows]
        axes.errorbar(
            names,
            values,
            yerr=_whiskers(rows, figure),
            capsize=4,
            color=colour,
            marker=marker,
            linestyle="none",
            label=figure.removesuffix("_ms"),
        )
        for place, value in enumerate(values):
            axes.annotate(
                f"{value:.2g}" if value < 10 else f"{value:.0f}",
                (place, value),
                xytext=(9, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_title("Latency of a write, ms")
    axes.set_xlabel("writes in flight")
    axes.margins(x=0.15, y=0.15)
    axes.legend(frameon=False)
    _bare_frame(axes)


def _whiskers(rows: Sequence[Mapping[str, Any]], name: str) -> list[list[float]]:
    return [[row[name] - row[f"{name}_min"] for row in rows], [row[f"{name}_max"] - row[name] for row in rows]]


def _bare_frame(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)


def _title(machine: Mapping[str, Any]) -> str:
    return (
        f"Three nodes on one machine, sync on: {machine['cpu_count']} cores, "
        f"{machine['cpu_model']}; {python_of(machine)}; "
        f"medians of {machine['rounds']} rounds, whiskers from minimum to maximum"
    )
