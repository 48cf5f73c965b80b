"""The command ``stelae bench cluster``."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae_bench.options import (
    EXIT_INTERRUPTED,
    ROUNDS_MIN,
    Directory,
    Json,
    Plot,
    Rounds,
    Seed,
    existing,
    note,
    print_json,
)

SECONDS = 2.0
SECONDS_QUICK = 0.8

_Quick = Annotated[bool, typer.Option("--quick", help="Short rounds: done within 50 seconds.")]
_Seconds = Annotated[
    float | None,
    typer.Option(
        min=0.05,
        max=60.0,
        help=f"How long each load writes in each round; {SECONDS:g} by default, {SECONDS_QUICK:g} with --quick.",
    ),
]
_Wal = Annotated[str, typer.Option(help="Log engine of the nodes.")]
_Consensus = Annotated[str, typer.Option(help="Consensus engine of the nodes.")]
_Store = Annotated[str, typer.Option(help="Store engine of the nodes.")]


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
