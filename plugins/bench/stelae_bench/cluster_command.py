"""The command ``stelae bench cluster``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stelae.cli.kit.output import JsonOption, note
from stelae.spi.errors import ConfigError
from stelae_bench.ending import exit_code, measured
from stelae_bench.options import ROUNDS_MIN, BenchDirectoryOption, Plot, Rounds, Seed, existing_folder, parts_in

if TYPE_CHECKING:
    from stelae_bench.cluster_context import BenchPart, ClusterBenchSettings
    from stelae_bench.peers import PeerCommand

SECONDS, SECONDS_QUICK = 2.0, 0.5
SLOT_SHARE, SLOT_SHARE_QUICK = 0.5, 0.25
"""The length of a slot of reads or YCSB as a share of a round of writes. There are many slots."""

SCALE, SCALE_QUICK = 0.5, 0.025
BULK_ROWS_MAX, BULK_ROWS_MAX_QUICK = 3_000_000, 150_000
IN_FLIGHT, IN_FLIGHT_QUICK = (1, 16, 64), (16,)
PEER_TIMEOUT_S = 600.0
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
_Leases = Annotated[
    bool, typer.Option("--leases", help="Leaders answer reads by a lease: sets [consensus.raft] clock_drift_ppm_max.")
]
_Peer = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=COMMAND", help="Another system, and the command that measures it. May be repeated."),
]
_PeerTimeout = Annotated[
    float, typer.Option(min=1.0, max=86_400.0, help="Seconds that one run of a peer's command may take.")
]
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
    leases: _Leases = False,
    peer: _Peer = None,
    peer_timeout: _PeerTimeout = PEER_TIMEOUT_S,
    directory: BenchDirectoryOption = None,
    plot: Plot = None,
    as_json: JsonOption = False,
) -> None:
    """Measure tablets with three replicas: writes, bulk loads, scans, point reads and YCSB.

    Three nodes run as processes on this machine and sync every write. Rounds are interleaved. Each
    result is the median over the rounds, with the minimum and the maximum. Beside it is what one
    operation cost: processor time, context switches, and how many operations shared a log entry.

    writes: durable single-row writes, and the bare machine for comparison. Each write is one row of
    eight mixed columns in a call of its own, acknowledged after a majority has synced it. One client
    process keeps 1, 16, 64 and 256 of them in flight; then eight processes keep eight each.

    bulk: Arrow tables through the client, with four calls under way: TPC-H lineitem, which needs
    stelae[bench], and the eight mixed columns.

    scan: the first rows of lineitem before they are flushed, and all of it after a flush, into Arrow;
    and pyarrow.parquet.read_table of the same rows for comparison.

    reads: rows by full key, from the newest state and from a snapshot; 1, 16 and 64 in flight. Then
    get_many, with 1000 keys in each call. The keys are of the mixed rows that were loaded.

    ycsb: the core workloads A to F; 1, 16 and 64 in flight, or 16 with --quick.

    With --peer, another system is measured in the same rounds of writes, reads and ycsb. The command
    starts and stops its own servers, and prints one JSON line for each result, such as
    {"work": "get", "in_flight": 64, "ops_per_s": 9100}. The page "Run a benchmark" describes it.

    Every acknowledged row is read back. Exit code 0: all rows were found. 1: rows are missing, or a
    peer failed.
    """
    from stelae_bench.cluster_context import ClusterBenchSettings
    from stelae_bench.cluster_data import default_cache

    chosen = parts_of(parts)
    _check_plot(plot, chosen)
    settings = ClusterBenchSettings(
        seed=seed,
        rounds=rounds,
        cache=cache or default_cache(),
        parts=chosen,
        engines={"wal": wal, "consensus": consensus, "store": store},
        fast_log=fast_log,
        leases=_checked_leases(leases, consensus),
        directory=existing_folder(directory),
        **_sizes(quick, seconds, scale),
        **_beside(peer or [], peer_timeout),
    )
    _run(settings, plot, as_json)


def _sizes(quick: bool, seconds: float | None, scale: float | None) -> dict[str, Any]:
    """Return how long and how large the measurements are, as settings."""
    long = seconds or (SECONDS_QUICK if quick else SECONDS)
    return {
        "seconds": long,
        "slot_s": long * (SLOT_SHARE_QUICK if quick else SLOT_SHARE),
        "in_flight": IN_FLIGHT_QUICK if quick else IN_FLIGHT,
        "bulk_rows_max": BULK_ROWS_MAX_QUICK if quick else BULK_ROWS_MAX,
        "scale": scale or (SCALE_QUICK if quick else SCALE),
    }


def _beside(peers: Sequence[str], timeout_s: float) -> dict[str, Any]:
    """Return what is measured beside Stelae, as settings."""
    return {"peers": peers_of(peers), "peer_timeout_s": timeout_s}


def peers_of(texts: Sequence[str]) -> list[PeerCommand]:
    """Return the peers in the values of ``--peer``.

    Raises:
        ConfigError: one is not ``NAME=COMMAND``, or two have the same name.
    """
    from stelae_bench.peers import PeerCommand

    found = [PeerCommand.parse(text) for text in texts]
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        raise ConfigError(f"--peer: two peers have one name: {', '.join(names)}", hint="Give each a name of its own.")
    return found


def parts_of(text: str) -> frozenset[BenchPart]:
    """Return the parts in a comma-separated list.

    Raises:
        typer.BadParameter: a part is unknown, or occurs twice.
    """
    from stelae_bench.cluster_context import BenchPart

    return parts_in(text, BenchPart)


def _checked_leases(leases: bool, consensus: str) -> bool:
    """Return the switch, if the consensus engine has leases."""
    if leases and consensus != "raft":
        raise typer.BadParameter("only the consensus engine 'raft' has read leases", param_hint="--leases")
    return leases


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
