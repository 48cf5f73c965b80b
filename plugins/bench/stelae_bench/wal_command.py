"""The command ``stelae bench wal``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stelae.cli.kit.errors import EXIT_INTERRUPTED
from stelae.cli.kit.output import JsonOption, note, print_json
from stelae.spi.errors import CallerError
from stelae_bench.options import ROUNDS_MIN, Directory, Plot, Rounds, Seed, ended_alike, existing
from stelae_bench.wal_cases import CEILING, ENGINES, INTERVAL_S, OTHERS, SyncMode

if TYPE_CHECKING:
    from stelae_bench.wal_report import WalReport

SECONDS = 0.4
SECONDS_QUICK = 0.12
RESTART_BYTES = 1_000_000_000
ENGINES_TEXT = ",".join(ENGINES)
SYNC_TEXT = ",".join(SyncMode)

_Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="Within 50 seconds: 100 B and 4 KiB; 1 and 64 in flight on one tablet, 1 on each of 100; no reads, "
        "restarts and collection.",
    ),
]
_Seconds = Annotated[
    float | None,
    typer.Option(
        min=0.005,
        max=60.0,
        help="How long each participant is measured in each case of each round; "
        f"{SECONDS:g} by default, {SECONDS_QUICK:g} with --quick.",
    ),
]
_Engines = Annotated[
    str, typer.Option(help="Log engines, separated by commas: any that `stelae plugins list` shows.", metavar="NAMES")
]
_FastLog = Annotated[bool, typer.Option("--fast-log", help="Write by the fast preset, as `[log] fast = true` does.")]
_Sync = Annotated[
    str,
    typer.Option(
        help="Modes, separated by commas: always (every group before it is acknowledged), interval (every "
        f"{INTERVAL_S * 1000:g} ms), never; all by default, with --quick only the first.",
        metavar="MODES",
    ),
]
_Markdown = Annotated[
    Path | None, typer.Option("--markdown", help="Also write the tables into this file, as they stand in a page.")
]
_RestartBytes = Annotated[
    int, typer.Option(min=4096, max=1 << 40, help="Payload of the log that is restarted, read and collected.")
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
    directory: Directory = None,
    plot: Plot = None,
    markdown: _Markdown = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the log engines beside bare loops, RocksDB and SQLite; everybody syncs alike.

    The engines run behind the kernel's own writer. Entries of 100 B, 4 KiB and 100 KiB; 1, 16, 64
    and 256 in flight on one tablet, and one on each of 100 and of 1000. The bare loop writes, and
    the databases commit, groups as large as the writer formed them. Rounds are interleaved; figures
    are medians over the rounds, with the least and the most. Without --quick also: reads, restarts
    and collection of a large log, and its disk space and processor time.

    A node syncs always. The other modes are measured to show what that costs.
    """
    from stelae_bench.wal_cases import WalBenchSettings
    from stelae_bench.wal_run import run

    _check_places(plot, markdown)
    settings = WalBenchSettings(
        seed=seed,
        rounds=rounds,
        seconds=seconds or (SECONDS_QUICK if quick else SECONDS),
        quick=quick,
        restart_bytes=restart_bytes,
        directory=existing(directory),
        engines=_names(engines),
        fast=fast_log,
        modes=_modes(sync),
    )
    try:
        with ended_alike():
            report = run(settings, note)
    except KeyboardInterrupt:
        note("interrupted; every process was stopped")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _show(report, plot, markdown, as_json)
    raise typer.Exit(0 if report.ok else 1)


def _check_places(plot: Path | None, page: Path | None) -> None:
    """See, before anything is measured, that what is asked for can be written."""
    from stelae_bench.plot import check

    if plot is not None:
        check(plot)
    if page is not None and not page.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {page.parent}; make it first", param_hint="--markdown")


def _names(text: str) -> tuple[str, ...]:
    """The engines that were asked for; whether they exist is for the registry to say."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        fact = ""
        if not name:
            fact = "a name is empty"
        elif name in (CEILING, *OTHERS):
            fact = f"{name!r} is what engines are measured beside"
        elif names.count(name) > 1:
            fact = f"{name!r} is named twice"
        if fact:
            raise typer.BadParameter(f"{fact}; write it like {ENGINES_TEXT}", param_hint="--engines")
    return names


def _modes(text: str) -> tuple[SyncMode, ...]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in list(SyncMode) or names.count(name) > 1:
            fact = f"{name!r} is named twice" if name in list(SyncMode) else f"{name!r} is no mode"
            raise typer.BadParameter(f"{fact}; known modes: {', '.join(SyncMode)}", param_hint="--sync")
    return tuple(SyncMode(name) for name in names)


def _show(report: WalReport, plot: Path | None, page: Path | None, as_json: bool) -> None:
    from stelae_bench.wal_plot import draw
    from stelae_bench.wal_table import lines, markdown

    document = report.document()
    if as_json:
        print_json(document)
    else:
        print("\n".join(lines(document)))
    if page is not None:
        try:
            page.write_text(markdown(document), encoding="utf-8")
        except OSError as error:
            raise CallerError(f"--markdown {page} cannot be written: {error}") from error
    if plot is not None:
        draw(document, plot)
    for problem in report.problems:
        note(f"problem: {problem}")
