"""The command ``stelae bench wal``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from stelae.cli.kit.output import JsonOption, note
from stelae.spi.errors import CallerError
from stelae_bench.ending import exit_code, measured
from stelae_bench.options import ROUNDS_MIN, BenchDirectoryOption, Plot, Rounds, Seed, existing_folder
from stelae_bench.wal_cases import CEILING, ENGINES, INTERVAL_S, REFERENCES, SyncMode

SECONDS = 0.4
SECONDS_QUICK = 0.12
RESTART_BYTES = 1_000_000_000
ENGINES_TEXT = ",".join(ENGINES)
SYNC_TEXT = ",".join(SyncMode)

_Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="Take less than 50 seconds: entries of 100 B and 4 KiB; 1 and 64 in flight on one tablet, 1 on each of "
        "100; no reads, restarts and collection.",
    ),
]
_Seconds = Annotated[
    float | None,
    typer.Option(
        min=0.005,
        max=60.0,
        help="Seconds that each participant is measured in each case of each round. "
        f"Default: {SECONDS:g}, or {SECONDS_QUICK:g} with --quick.",
    ),
]
_Engines = Annotated[
    str, typer.Option(help="Log engines, separated by commas: any that `stelae plugins list` shows.", metavar="NAMES")
]
_FastLog = Annotated[bool, typer.Option("--fast-log", help="Use the fast preset, like `[log] fast = true`.")]
_Sync = Annotated[
    str,
    typer.Option(
        help="Modes, separated by commas: always (each group before it is acknowledged), interval (every "
        f"{INTERVAL_S * 1000:g} ms), never. Default: all modes, or the first with --quick.",
        metavar="MODES",
    ),
]
_Markdown = Annotated[
    Path | None, typer.Option("--markdown", help="Also write the tables into this file, in Markdown.")
]
_RestartBytes = Annotated[
    int,
    typer.Option(min=4096, max=1 << 40, help="Bytes of the entries of the log that is restarted, read and collected."),
]


def wal(
    quick: _Quick = False,
    engines: _Engines = ENGINES_TEXT,
    fast_log: _FastLog = False,
    sync: _Sync = SYNC_TEXT,
    rounds: Rounds = ROUNDS_MIN,
    seconds: _Seconds = None,
    restart_bytes: _RestartBytes = RESTART_BYTES,
    seed: Seed = 1,
    directory: BenchDirectoryOption = None,
    plot: Plot = None,
    markdown: _Markdown = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the log engines, and bare loops, RocksDB and SQLite for comparison. All sync alike.

    The engines run behind the kernel's own writer. Entries have 100 B, 4 KiB and 100 KiB; 1, 16, 64
    and 256 are in flight on one tablet, and one on each of 100 and of 1000. The bare loops and the
    databases write groups of the sizes that the writer has formed. Rounds are interleaved. Each
    result is the median over the rounds, with the minimum and the maximum. Without --quick, the
    command also measures reads, restarts and collection of a large log, and its disk space and
    processor time.

    A node always syncs. The other modes show what that costs.
    """
    from stelae_bench.wal_cases import WalBenchSettings
    from stelae_bench.wal_run import run
    from stelae_bench.wal_table import lines

    _check_outputs(plot, markdown)
    settings = WalBenchSettings(
        seed=seed,
        rounds=rounds,
        seconds=seconds or (SECONDS_QUICK if quick else SECONDS),
        quick=quick,
        restart_bytes=restart_bytes,
        directory=existing_folder(directory),
        engines=_names(engines),
        fast=fast_log,
        modes=_modes(sync),
    )
    report = measured(lambda: run(settings, note))
    written = partial(_write, plot=plot, page=markdown)
    raise typer.Exit(exit_code(report, lines, as_json=as_json, draw=written))


def _check_outputs(plot: Path | None, page: Path | None) -> None:
    """Check, before anything is measured, that the output files can be written."""
    from stelae_bench.plot import check

    if plot is not None:
        check(plot)
    if page is not None and not page.parent.is_dir():
        raise typer.BadParameter(f"folder {page.parent} does not exist; create it first", param_hint="--markdown")


def _names(text: str) -> tuple[str, ...]:
    """Return the names of the engines. Whether they exist is checked later."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        fact = ""
        if not name:
            fact = "a name is empty"
        elif name in (CEILING, *REFERENCES):
            fact = f"{name!r} is always measured, for comparison"
        elif names.count(name) > 1:
            fact = f"{name!r} occurs twice"
        if fact:
            raise typer.BadParameter(f"{fact}; name engines like this: {ENGINES_TEXT}", param_hint="--engines")
    return names


def _modes(text: str) -> tuple[SyncMode, ...]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in list(SyncMode) or names.count(name) > 1:
            fact = f"{name!r} occurs twice" if name in list(SyncMode) else f"{name!r} is not a mode"
            raise typer.BadParameter(f"{fact}; known modes: {', '.join(SyncMode)}", param_hint="--sync")
    return tuple(SyncMode(name) for name in names)


def _write(document: dict[str, Any], plot: Path | None, page: Path | None) -> None:
    """Write the page and the plot that were asked for."""
    from stelae_bench.wal_plot import draw
    from stelae_bench.wal_table import markdown

    if page is not None:
        try:
            page.write_text(markdown(document), encoding="utf-8")
        except OSError as error:
            raise CallerError(f"--markdown {page} cannot be written: {error}") from error
    if plot is None:
        return
    if document["rows"]:
        draw(document, plot)
    else:
        note(f"nothing was measured, so there is no plot {plot}")
