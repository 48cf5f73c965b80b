"""Formats a report of ``stelae bench wal`` as tables, for a terminal or in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from stelae_bench.machine import python_of
from stelae_bench.table import aligned
from stelae_bench.wal_cases import SyncMode, WalCase

RATIOS = {
    "vs_raw": "64 x 4 KiB: entries/s, relative to the bare loop",
    "vs_raw_written": "... to the bare loop in space written before",
    "vs_raw_crc": "... to the bare loop with header and CRC",
    "vs_rocksdb": "... to RocksDB",
    "vs_sqlite": "... to SQLite",
    "latency_vs_raw": "1 x 4 KiB: p50, relative to the bare loop",
    "commit_100_vs_1": "4 KiB on each of 100 tablets: the engine's commit, relative to one tablet",
    "tablets_100_vs_1": "... the whole time from the append to its answer",
}


class Aim(NamedTuple):
    """The aim of a ratio: a minimum or a maximum, for every engine or for one."""

    least: float | None = None
    most: float | None = None
    engine: str = ""

    @property
    def words(self) -> str:
        """The aim as text for a table."""
        bound = f"{self.least:g} or more" if self.least is not None else f"{self.most:g} or less"
        return f"{bound}, {self.engine}" if self.engine else bound


AIMS = {
    "vs_raw": Aim(least=0.65),
    "vs_raw_crc": Aim(least=0.8),
    "vs_rocksdb": Aim(least=2),
    "vs_sqlite": Aim(least=2),
    "latency_vs_raw": Aim(most=2),
    "commit_100_vs_1": Aim(most=5, engine="shared"),
    "tablets_100_vs_1": Aim(most=5, engine="shared"),
}
LOGS = {
    "fill_mb_per_s": "filled, MB/s",
    "cpu_s_per_gb": "processor time per GB, s",
    "disk_bytes_per_payload_byte": "disk bytes per payload byte",
    "restart_after_kill_s": "restart after kill, s",
    "restart_after_close_s": "restart after close, s",
    "read_sequential_mb_per_s": "read in sequence, MB/s",
    "read_random_p50_us": "one entry read, p50 us",
    "read_random_p99_us": "... p99 us",
    "collect_s": "all entries collected, s",
    "collect_freed_percent": "... space freed, percent",
}


_Table: TypeAlias = list[list[str]]


def lines(document: Mapping[str, Any]) -> list[str]:
    """Return the lines to print."""
    modes = dict.fromkeys(row["sync"] for row in document["rows"])
    found = [f"log engines behind the kernel's writer, sync {' and '.join(modes)}", ""]
    for title, table in _tables(document):
        found += [title, *aligned(table), ""]
    return [*found, *_circumstances(document), "", "ok" if document["ok"] else "NOT OK"]


def markdown(document: Mapping[str, Any]) -> str:
    """Return the same tables in Markdown, followed by the circumstances."""
    found = []
    for title, (head, *rows) in _tables(document):
        marked = [head[0], *[f"`{name}`" if name != "aim" else name for name in head[1:]]]
        found += [f"{title}:", "", *[_marked(row) for row in (marked, ["---"] * len(head), *rows)], ""]
    return "\n".join([*found, *[f"- {line}" for line in _circumstances(document)], ""])


def _marked(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |"


def _tables(document: Mapping[str, Any]) -> Iterator[tuple[str, _Table]]:
    rows = document["rows"]
    yield "entries/s", _pivot(rows, lambda row: f"{row['entries_per_s']:,.0f}")
    yield "p50 / p99, us", _pivot(rows, lambda row: f"{row['p50_us']:,.0f} / {row['p99_us']:,.0f}")
    yield "ratios: median (minimum - maximum) of the rounds", _ratios(document["ratios"])
    if document["logs"]:
        size = document["machine"]["settings"]["restart_bytes"] / 1e9
        yield f"one log of {size:g} GB in entries of 4 KiB", _columns(document["logs"], LOGS, _short)


def _circumstances(document: Mapping[str, Any]) -> list[str]:
    machine = document["machine"]
    return [
        *[f"{name} is left out: {why}" for name, why in document["left_out"].items()],
        f"machine  {machine['cpu_count']} cores, {machine['cpu_model']}, {python_of(machine)}, "
        f"load {machine['load_average_1_min']}",
        f"method   medians of {machine['rounds']} interleaved rounds of "
        f"{machine['settings']['round_seconds']:g} s, seed {machine['seed']}",
    ]


def _pivot(rows: Sequence[Mapping[str, Any]], show: Callable[[Mapping[str, Any]], str]) -> _Table:
    """Return a table with one line for each case and one column for each participant."""
    cells = {(case_of(row), row["engine"]): show(row) for row in rows}
    names = participants(rows)
    cases = list(dict.fromkeys(case_of(row) for row in rows))
    table = [["in flight", *names]]
    table += [[str(case), *[cells.get((case, name), "") for name in names]] for case in cases]
    return table


def _ratios(ratios: Sequence[Mapping[str, Any]]) -> _Table:
    """Return a table of the quotients, with their aims."""

    def show(row: Mapping[str, Any], key: str) -> str:
        return f"{row[key]:.2f} ({row[f'{key}_min']:.2f} - {row[f'{key}_max']:.2f})"

    head, *rows = _columns(ratios, RATIOS, show)
    aims = {name: AIMS[key].words if key in AIMS else "" for key, name in RATIOS.items()}
    return [[head[0], "aim", *head[1:]], *[[row[0], aims[row[0]], *row[1:]] for row in rows]]


def _columns(
    rows: Sequence[Mapping[str, Any]], names: Mapping[str, str], show: Callable[[Mapping[str, Any], str], str]
) -> _Table:
    """Return a table with one line for each value and one column for each engine."""
    table = [["", *[row["engine"] for row in rows]]]
    for key, name in names.items():
        if any(key in row for row in rows):
            table.append([name, *[show(row, key) if key in row else "" for row in rows]])
    return table


def _short(row: Mapping[str, Any], key: str) -> str:
    value = row[key]
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def participants(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the participants in the rows of a document, in their order."""
    return list(dict.fromkeys(row["engine"] for row in rows))


def case_of(row: Mapping[str, Any]) -> WalCase:
    """Return the case of a row of the document."""
    return WalCase(row["entry_bytes"], row["in_flight"], row["tablets"], SyncMode(row["sync"]))
