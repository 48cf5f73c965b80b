"""The command group ``stelae bench``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

ROUNDS_MIN = 5
"""Fewer rounds say nothing about how far they spread."""

EXIT_INTERRUPTED = 130
SECONDS = 2.0
SECONDS_QUICK = 0.8


_Quick = Annotated[bool, typer.Option("--quick", help="Short rounds: done within 50 seconds.")]
Rounds = Annotated[int, typer.Option(min=ROUNDS_MIN, max=1000, help="Rounds.")]
_Seconds = Annotated[
    float | None,
    typer.Option(
        min=0.05,
        max=60.0,
        help=f"How long each load writes in each round; {SECONDS:g} by default, {SECONDS_QUICK:g} with --quick.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Draws the rows and the order within each round.")]
_Wal = Annotated[str, typer.Option(help="Log engine of the nodes.")]
_Consensus = Annotated[str, typer.Option(help="Consensus engine of the nodes.")]
_Store = Annotated[str, typer.Option(help="Store engine of the nodes.")]
Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help="Measure the disk that holds this folder: all data go into a temporary "
        "folder in it. By default where temporary files go.",
    ),
]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="Draw the figures into this .png or .svg file; needs stelae[bench].")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text for people.")]


def register(app: Any) -> None:
    """Add the group to the root application."""
    from stelae_bench.wal_command import wal

    group = typer.Typer(
        no_args_is_help=True, rich_markup_mode=None, help="Measure what this installation does on this machine."
    )
    group.callback()(_group)
    group.command("cluster")(cluster)
    group.command("wal")(wal)
    app.add_typer(group, name="bench")


def _group() -> None:
    """Measure what this installation does on this machine."""


def cluster(
    quick: _Quick = False,
    rounds: Rounds = ROUNDS_MIN,
    seconds: _Seconds = None,
    seed: Seed = 1,
    wal: _Wal = "segmented",
    consensus: _Consensus = "raft",
    store: _Store = "memory",
    directory: Directory = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Measure durable single-row writes to a tablet with three replicas, beside the bare machine.

    Three nodes run as processes on this machine and sync every write. Each write is one row of
    eight mixed columns in a call of its own, and is acknowledged once a majority has synced it.
    One client process keeps 1, 16, 64 and 256 of them in flight; then eight processes keep eight
    each. Rounds are interleaved; figures are medians over the rounds, with the least and the most.

    At the end every acknowledged row is read back. Exit code 0: all are there. 1: they are not.
    """
    from stelae_bench.cluster import Settings, run
    from stelae_bench.plot import check, draw
    from stelae_bench.table import lines

    if plot is not None:
        check(plot)
    settings = Settings(
        seed=seed,
        rounds=rounds,
        seconds=seconds or (SECONDS_QUICK if quick else SECONDS),
        engines={"wal": wal, "consensus": consensus, "store": store},
        directory=existing(directory),
    )
    try:
        report = run(settings, note)
    except KeyboardInterrupt:
        note("interrupted; every process was stopped")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    document = report.document()
    if as_json:
        print_json(document)
    else:
        print("\n".join(lines(document)))
    if plot is not None:
        draw(document, plot)
    for problem in report.problems:
        note(f"problem: {problem}")
    raise typer.Exit(0 if report.ok else 1)


def existing(directory: Path | None) -> Path | None:
    if directory is not None and not directory.is_dir():
        raise typer.BadParameter(f"{directory} is no folder; make it first", param_hint="--dir")
    return directory


def print_json(document: Any) -> None:
    import orjson

    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    sys.stdout.write(orjson.dumps(document, option=options).decode())
    sys.stdout.flush()


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
