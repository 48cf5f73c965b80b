"""The command ``stelae bench cluster``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stelae.cli.kit.output import JsonOption, note
from stelae_bench.ending import exit_code, measured
from stelae_bench.options import ROUNDS_MIN, BenchDirectoryOption, Plot, Rounds, Seed, existing_folder, parts_in

if TYPE_CHECKING:
    from stelae_bench.cluster_context import BenchPart, ClusterBenchSettings

SECONDS, SECONDS_QUICK = 2.0, 0.5
SLOT_SHARE, SLOT_SHARE_QUICK = 0.5, 0.25
"""The length of a slot of reads or YCSB as a share of a round of writes. There are many slots."""

SCALE, SCALE_QUICK = 0.5, 0.025
BULK_ROWS_MAX, BULK_ROWS_MAX_QUICK = 3_000_000, 150_000
IN_FLIGHT, IN_FLIGHT_QUICK = (1, 16, 64), (16,)
PARTS_TEXT = "writes,bulk,scan,reads,ycsb"

_Quick = Annotated[bool, typer.Option("--quick", help="Short rounds and few rows. Takes less than 50 seconds.")]
_Parts = Annotated[str, typer.Option(help="What to measure, separated by commas.")]
_Seconds = Annotated[
    float | None,
    typer.Option(
        min=0.05,
        max=60.0,
        help=f"Seconds of each load of writes, and of each bulk load, in each round. Default: {SECONDS:g}, or "
        f"{SECONDS_QUICK:g} with --quick. Reads and YCSB take a part of that.",
    ),
]
_Scale = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        max=100.0,
        help=f"TPC-H scale factor of lineitem; 1 has 6 million rows. Default: {SCALE:g}, or {SCALE_QUICK:g} with "
        "--quick. As many rows are loaded as the time allows.",
    ),
]
_Cache = Annotated[
    Path | None,
    typer.Option(help="Folder for generated tables, which are kept. Default: a folder in your cache folder."),
]
_Wal = Annotated[str, typer.Option(help="Log engine of the nodes.")]
_FastLog = Annotated[bool, typer.Option("--fast-log", help="Set `[log] fast = true` on the nodes.")]
_Consensus = Annotated[str, typer.Option(help="Consensus engine of the nodes.")]
_Store = Annotated[str, typer.Option(help="Store engine of the nodes.")]


def cluster(
    quick: _Quick = False,
    parts: _Parts = PARTS_TEXT,
    rounds: Rounds = ROUNDS_MIN,
    seconds: _Seconds = None,
    scale: _Scale = None,
    cache: _Cache = None,
    seed: Seed = 1,
    wal: _Wal = "segmented",
    fast_log: _FastLog = False,
    consensus: _Consensus = "raft",
    store: _Store = "columnar",
    directory: BenchDirectoryOption = None,
    plot: Plot = None,
    as_json: JsonOption = False,
) -> None:
    """Measure tablets with three replicas: writes, bulk loads, scans, point reads and YCSB.

    Three nodes run as processes on this machine and sync every write. Rounds are interleaved. Each
    result is the median over the rounds, with the minimum and the maximum.

    writes: durable single-row writes, and the bare machine for comparison. Each write is one row of
    eight mixed columns in a call of its own, acknowledged after a majority has synced it. One client
    process keeps 1, 16, 64 and 256 of them in flight; then eight processes keep eight each.

    bulk: Arrow tables through the client, with four calls under way: TPC-H lineitem, which needs
    stelae[bench], and the eight mixed columns.

    scan: all of lineitem into Arrow, and pyarrow.parquet.read_table of the same rows for comparison.

    reads: rows by full key, from the newest state and from a snapshot; 1, 16 and 64 in flight. Then get_many, with 1000
    keys in each call.

    ycsb: the core workloads A to F; 1, 16 and 64 in flight, or 16 with --quick.

    Every acknowledged row is read back. Exit code 0: all rows were found. 1: rows are missing.
    """
    from stelae_bench.cluster_context import ClusterBenchSettings
    from stelae_bench.cluster_data import default_cache

    long = seconds or (SECONDS_QUICK if quick else SECONDS)
    chosen = parts_of(parts)
    _check_plot(plot, chosen)
    settings = ClusterBenchSettings(
        seed=seed,
        rounds=rounds,
        seconds=long,
        slot_s=long * (SLOT_SHARE_QUICK if quick else SLOT_SHARE),
        in_flight=IN_FLIGHT_QUICK if quick else IN_FLIGHT,
        bulk_rows_max=BULK_ROWS_MAX_QUICK if quick else BULK_ROWS_MAX,
        scale=scale or (SCALE_QUICK if quick else SCALE),
        cache=cache or default_cache(),
        parts=chosen,
        engines={"wal": wal, "consensus": consensus, "store": store},
        fast_log=fast_log,
        directory=existing_folder(directory),
    )
    _run(settings, plot, as_json)


def parts_of(text: str) -> frozenset[BenchPart]:
    """Return the parts in a comma-separated list.

    Raises:
        typer.BadParameter: a part is unknown, or occurs twice.
    """
    from stelae_bench.cluster_context import BenchPart

    return parts_in(text, BenchPart)


def _check_plot(plot: Path | None, parts: frozenset[BenchPart]) -> None:
    """Check, before anything is measured, that the plot can be drawn."""
    from stelae_bench.plot import check

    if plot is None:
        return
    if "writes" not in parts:
        raise typer.BadParameter("the plot shows writes; add writes to --parts", param_hint="--plot")
    check(plot)


def _run(settings: ClusterBenchSettings, plot: Path | None, as_json: bool) -> None:
    from stelae_bench.cluster import run
    from stelae_bench.plot import draw
    from stelae_bench.table import lines

    report = measured(lambda: run(settings, note))
    drawing = None if plot is None else partial(draw, path=plot)
    raise typer.Exit(exit_code(report, lines, as_json=as_json, draw=drawing))
