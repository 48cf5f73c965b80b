"""Plots a report of ``stelae bench wal``: the ratios and their aims, then entries per second and latency, with one row
for each mode and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import sub
from pathlib import Path
from typing import Any

from stelae.spi.extras import require
from stelae_bench.machine import python_of
from stelae_bench.plot import save
from stelae_bench.wal_cases import WalCase
from stelae_bench.wal_table import AIMS, case_of, participants

_WIDTH_IN, _ROW_IN, _TITLE_IN = 15.0, 4.2, 1.1
_VALUE_POINTS = 6.5
"""The font size of the values above the marks. They are vertical, because there are fifty in a row."""
_LEGEND_COLUMNS = 9
"""The most names in a row of the legend. More are wider than the plot."""
_SPREAD = 0.72
"""The share of a case's width that its participants take."""

_RATIOS = {
    "vs_raw": "64 x 4 KiB, of raw",
    "vs_raw_crc": "64 x 4 KiB, of raw_crc",
    "vs_rocksdb": "64 x 4 KiB, of rocksdb",
    "vs_sqlite": "64 x 4 KiB, of sqlite",
    "latency_vs_raw": "latency of 1 x 4 KiB, of raw",
    "commit_100_vs_1": "commit of 100 tablets, of one",
    "tablets_100_vs_1": "... from append to answer",
}
_STYLES = {
    "segmented": ("#0072b2", "o"),
    "lmdb": ("#009e73", "o"),
    "shared": ("#d55e00", "o"),
    "crc_queued": ("#56b4e9", "X"),
    "raw": ("#000000", "D"),
    "raw_written": ("#8c510a", "P"),
    "raw_crc": ("#8a8a8a", "D"),
    "rocksdb": ("#cc79a7", "s"),
    "sqlite": ("#e0a100", "s"),
}
"""Colours that colour-blind readers can distinguish. The shapes: engines, their ceiling, bare loops, databases."""

_MORE_STYLES = (("#f0e442", "^"), ("#882255", "^"), ("#44aa99", "v"), ("#999933", "v"))
"""Styles of other engines, in turn."""


def draw(document: Mapping[str, Any], path: Path) -> None:
    """Plot a report's document, as PNG and as SVG.

    Raises:
        BadPlotFile: a file cannot be written.
    """
    save(figure_of(document), path)


def figure_of(document: Mapping[str, Any]) -> Any:
    """Return the figure of a report's document. Title and legend are above the axes."""
    rows = document["rows"]
    sizes = list(dict.fromkeys((row["sync"], row["entry_bytes"]) for row in rows))
    aimed = [ratios for ratios in document["ratios"] if AIMS.keys() & ratios.keys()]
    count = len(sizes) + bool(aimed)
    figure = require("matplotlib.figure", extra="bench", wanted_by="--plot").Figure(
        figsize=(_WIDTH_IN, _TITLE_IN + _ROW_IN * count), layout="constrained"
    )
    grid = figure.add_gridspec(count, 2)
    if aimed:
        _aims(figure.add_subplot(grid[0, :]), aimed)
    places = [(figure.add_subplot(grid[row, 0]), figure.add_subplot(grid[row, 1])) for row in range(bool(aimed), count)]
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


def _aims(axes: Any, ratios: Sequence[Mapping[str, Any]]) -> None:
    """Plot each ratio as a share of its aim, or the inverse if smaller is better."""
    keys = [key for key in AIMS if any(key in one for one in ratios)]
    engines = [one["engine"] for one in ratios]
    for number, one in enumerate(ratios):
        shift = _SPREAD * ((number + 0.5) / len(ratios) - 0.5)
        own = [key for key in keys if key in one]
        values, *ends = [[_share(key, one[f"{key}{which}"]) for key in own] for which in ("", "_min", "_max")]
        low, high = [list(map(pick, *ends)) for pick in (min, max)]
        whiskers = [list(map(sub, values, low)), list(map(sub, high, values))]
        places = [keys.index(key) + shift for key in own]
        _marks(axes, one["engine"], engines, places, values, whiskers)
        _values(axes, places, high, [f"{one[key]:.{2 if one[key] < 10 else 0}f}" for key in own])
    axes.axhline(1, color="#b2182b", linewidth=1.2)
    _frame(axes, len(keys), [f"{_RATIOS[key]}\naim: {AIMS[key].words}" for key in keys])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.tick_params(axis="x", labelsize=9)
    axes.set_title(
        "Share of each aim (on the line or above: reached), with the measured ratio above its mark", fontsize=10
    )


def _share(key: str, ratio: float) -> float:
    least, most, _ = AIMS[key]
    if least is not None:
        return ratio / least
    assert most is not None
    return most / ratio


def _points(axes: Any, rows: Sequence[Mapping[str, Any]], name: str, title: str) -> None:
    cases = list(dict.fromkeys(case_of(row) for row in rows))
    names = participants(rows)
    for number, participant in enumerate(names):
        shift = _SPREAD * ((number + 0.5) / len(names) - 0.5)
        own = [row for row in rows if row["engine"] == participant]
        values = [row[name] for row in own]
        below = [row[name] - row[f"{name}_min"] for row in own]
        above = [row[f"{name}_max"] - row[name] for row in own]
        places = [cases.index(case_of(row)) + shift for row in own]
        _marks(axes, participant, names, places, values, [below, above])
        _values(axes, places, [row[f"{name}_max"] for row in own], [_short(value) for value in values])
    _frame(axes, len(cases), [_load(case) for case in cases])
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_title(title, fontsize=10)


def _marks(
    axes: Any,
    participant: str,
    everyone: Sequence[str],
    places: Sequence[float],
    values: Sequence[float],
    whiskers: Sequence[Sequence[float]],
) -> None:
    more = [name for name in everyone if name not in _STYLES]
    colour, marker = _STYLES.get(participant) or _MORE_STYLES[more.index(participant) % len(_MORE_STYLES)]
    axes.errorbar(
        places,
        values,
        yerr=whiskers,
        color=colour,
        marker=marker,
        markersize=5,
        capsize=2,
        elinewidth=1,
        linestyle="none",
        label=participant,
    )


def _values(axes: Any, places: Sequence[float], tops: Sequence[float], texts: Sequence[str]) -> None:
    """Write each value above its whisker."""
    for place, top, text in zip(places, tops, texts, strict=True):
        axes.annotate(
            text,
            (place, top),
            xytext=(0, 4),
            textcoords="offset points",
            rotation=90,
            ha="center",
            va="bottom",
            fontsize=_VALUE_POINTS,
        )


def _frame(axes: Any, count: int, names: Sequence[str]) -> None:
    for edge in range(1, count):
        axes.axvline(edge - 0.5, color="#cccccc", linewidth=0.8)
    axes.set_yscale("log")
    axes.margins(y=0.16)
    axes.set_xticks(range(count), names)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)


def _short(value: float) -> str:
    """Return a number in short form: 137k, 1.4k, 870."""
    if value >= 1e6:
        return f"{value / 1e6:.1f}M"
    if value >= 1e3:
        return f"{value / 1e3:.0f}k" if value >= 1e4 else f"{value / 1e3:.1f}k"
    return f"{value:.0f}"


def _load(case: WalCase) -> str:
    if case.tablets == 1:
        return f"{case.in_flight} in flight"
    return f"{case.in_flight} each on\n{case.tablets} tablets"


def _size(entry_bytes: int) -> str:
    return f"{entry_bytes >> 10} KiB" if entry_bytes >= 1024 else f"{entry_bytes} B"


def _title(machine: Mapping[str, Any]) -> str:
    return (
        f"Log engines behind the kernel's writer: {machine['cpu_count']} cores, "
        f"{machine['cpu_model']}; {python_of(machine)}; "
        f"medians of {machine['rounds']} rounds, whiskers from minimum to maximum"
    )
