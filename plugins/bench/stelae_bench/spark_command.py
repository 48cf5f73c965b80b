"""The command ``stelae bench spark``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stelae.cli.kit.output import JsonOption, note
from stelae_bench.ending import exit_code, measured
from stelae_bench.options import ROUNDS_MIN, BenchDirectoryOption, Plot, Rounds, Seed, existing_folder

if TYPE_CHECKING:
    from stelae_bench.spark_run import SparkBenchSettings

ROWS, ROWS_QUICK = 2_000_000, 200_000
WANTED_BY = "stelae bench spark"

_Quick = Annotated[bool, typer.Option("--quick", help=f"Measure {ROWS_QUICK:,} rows. Takes about two minutes.")]
_Rows = Annotated[
    int | None,
    typer.Option(
        min=1_000, max=100_000_000, help=f"Rows of each pass. Default: {ROWS:,}, or {ROWS_QUICK:,} with --quick."
    ),
]
_Master = Annotated[str, typer.Option(help="How many tasks of Spark run at the same time, as Spark writes it.")]
_Wal = Annotated[str, typer.Option(help="Log engine of the tablet servers.")]
_Store = Annotated[str, typer.Option(help="Store engine of the tablet servers.")]


def spark(
    quick: _Quick = False,
    rows: _Rows = None,
    rounds: Rounds = ROUNDS_MIN,
    master: _Master = "local[2]",
    seed: Seed = 1,
    wal: _Wal = "segmented",
    store: _Store = "columnar",
    directory: BenchDirectoryOption = None,
    plot: Plot = None,
    as_json: JsonOption = False,
) -> None:
    """Measure reading and writing of tables with Spark, beside a source and a sink that do nothing.

    One master and three tablet servers run as processes on this machine, with three replicas of each tablet. Spark
    runs with two tasks at a time. Rounds are interleaved: each round measures every pass once, in an order drawn from
    the seed. Each result is the median over the rounds, with the minimum and the maximum.

    reading: a table of eight mixed columns into Spark's sink `noop`; the same rows from a Python data source that has
    them in memory; the same table with `table.scan().to_arrow()` of the client.

    writing: rows that Spark generates, into an empty table; the same rows into a Python data source that ignores them;
    the same rows with `table.upsert` of the client.

    The aims are 50 % of the source that does nothing, and 80 % of the sink that does nothing. They do not change the
    exit code. Needs Java and stelae[spark].

    Exit code 0: every pass read or wrote all rows. 1: rows are missing or differ.
    """
    from stelae_bench.spark_plot import check
    from stelae_bench.spark_run import SparkBenchSettings

    if plot is not None:
        check(plot)
    settings = SparkBenchSettings(
        rows=rows or (ROWS_QUICK if quick else ROWS),
        rounds=rounds,
        master=master,
        seed=seed,
        engines={"wal": wal, "store": store},
        directory=existing_folder(directory),
    )
    raise typer.Exit(_run(settings, plot, as_json))


def _run(settings: SparkBenchSettings, plot: Path | None, as_json: bool) -> int:
    from stelae_bench.spark_plot import draw
    from stelae_bench.spark_report import lines
    from stelae_bench.spark_run import run
    from stelae_spark_sink.local_session import check_spark

    check_spark(WANTED_BY)
    report = measured(lambda: run(settings, note))
    drawing = None if plot is None else partial(draw, path=plot)
    return exit_code(report, lines, as_json=as_json, draw=drawing)
