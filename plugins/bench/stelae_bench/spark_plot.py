"""Plots a report of ``stelae bench spark``: rows per second with Spark, without work, and with the client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stelae.spi.extras import require
from stelae_bench.machine import python_of
from stelae_bench.plot import check, save

__all__ = ["check", "draw"]

_WIDTH_IN, _HEIGHT_IN = 10.0, 4.6
_COLOURS = ("#4878a8", "#b0b0b0", "#8db580")


def draw(document: Mapping[str, Any], path: Path) -> None:
    """Plot a report's document, as PNG and as SVG. A part that was not measured is an empty chart.

    Raises:
        BadPlotFile: a file cannot be written.
    """
    figure = require("matplotlib.figure", extra="bench", wanted_by="--plot").Figure(
        figsize=(_WIDTH_IN, _HEIGHT_IN), layout="constrained"
    )
    reading, writing = figure.subplots(1, 2)
    _bars(reading, "reading", "source that\ndoes nothing", document["reading"])
    _bars(writing, "writing", "sink that\ndoes nothing", document["writing"])
    machine = document["machine"]
    figure.suptitle(
        f"{document['rows']:,} rows of eight columns, Spark {machine['versions']['pyspark']} "
        f"{machine['settings']['master']} and three nodes on one machine: {machine['cpu_count']} cores, "
        f"{machine['cpu_model']}; {python_of(machine)}; medians of {machine['rounds']} rounds",
        fontsize=9,
    )
    save(figure, path)


def _bars(axes: Any, what: str, nothing: str, found: Mapping[str, Any] | None) -> None:
    axes.set_title(f"{what.capitalize()}, rows per second")
    if found is None:
        return
    names = ("rows_per_s", "nothing_rows_per_s", "client_rows_per_s")
    values = [found[name] for name in names]
    whiskers = [
        [found[name] - found[f"{name}_min"] for name in names],
        [found[f"{name}_max"] - found[name] for name in names],
    ]
    bars = axes.bar(("Stelae", nothing, "client\nalone"), values, yerr=whiskers, capsize=4, color=_COLOURS, width=0.6)
    axes.bar_label(bars, [f"{value:,.0f}" for value in values], padding=4, fontsize=9)
    axes.set_xlabel(f"{found['vs_nothing']:.0%} of doing nothing; the aim is {found['aim_vs_nothing']:.0%}")
    axes.margins(y=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
