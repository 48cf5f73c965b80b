"""The command ``stelae chaos``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stelae.cli.kit.output import JsonOption

MINUTES_MAX = 24 * 60.0
SERVERS_MIN, SERVERS_MAX = 3, 9
EVERY_S_MAX = 3600.0

_Directory = Annotated[
    Path | None,
    typer.Option("--dir", help="Break the cluster that `stelae cluster up DIR` has started in this folder."),
]
_Up = Annotated[bool, typer.Option("--up", help="Start a new cluster, and remove it after a clean run.")]
_Minutes = Annotated[
    float, typer.Option("--minutes", min=0, max=MINUTES_MAX, help="How long faults are injected, such as 0.5.")
]
_Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, help="Seed of the faults and of the clients. Default: drawn, and printed."),
]
_Faults = Annotated[
    str, typer.Option("--faults", help="Kinds of faults, separated by commas. Default: all that are possible.")
]
_Servers = Annotated[
    int | None,
    typer.Option("--servers", min=SERVERS_MIN, max=SERVERS_MAX, help="With --up: number of tablet servers. Default 4."),
]
_Every = Annotated[
    float | None,
    typer.Option(
        "--every", max=EVERY_S_MAX, help="Seconds from one fault to the next, 5 or more. Default: drawn, a few seconds."
    ),
]
_Clients = Annotated[int, typer.Option("--clients", min=1, max=16, help="Number of client processes.")]
_Keep = Annotated[
    Path | None,
    typer.Option(
        "--keep",
        help="With --up: create the cluster in this new folder and keep it. `stelae cluster up` starts it again.",
    ),
]
_Wal = Annotated[
    str, typer.Option(help="With --up: log engine of the tablet servers, or one for each: a,b,c. Default: segmented.")
]
_Store = Annotated[
    str, typer.Option(help="With --up: store of the tablet servers, or one for each: a,b,c. Default: columnar.")
]
_Plot = Annotated[
    Path | None,
    typer.Option("--plot", help="Draw the timeline into this .svg file. Default: chaos-SEED.svg in this folder."),
]


def register(app: Any) -> None:
    """Add the command to the root application."""
    app.command("chaos")(chaos)


def chaos(
    directory: _Directory = None,
    up: _Up = False,
    minutes: _Minutes = 1.0,
    seed: _Seed = None,
    faults: _Faults = "",
    every: _Every = None,
    servers: _Servers = None,
    clients: _Clients = 3,
    keep: _Keep = None,
    wal: _Wal = "",
    store: _Store = "",
    plot: _Plot = None,
    as_json: JsonOption = False,
) -> None:
    """Break a cluster while clients use it, then heal it and check that the clients saw nothing impossible.

    Client processes write and read registers, appends, counters and groups of accounts with a constant sum. Meanwhile
    one fault follows another, drawn from the seed. Then everything is healed. The cluster must become healthy, every
    tablet must have as many voters as its table wants, replicas must be equal, no acknowledged write may be lost or
    doubled, every register must be linearizable, and every snapshot must show whole batches. A picture of the timeline
    shows what was broken, who led, and how late answers were.

    With --up, three masters and --servers tablet servers run on this machine. At the end the servers are stopped, and
    none may have orphan files: `stelae fs check` lists them. If something is wrong, the folder of the cluster is kept.
    With --dir, nodes are killed and started again, and the tables of the run are dropped after a clean run. Faults of
    networks, disks and clocks need files of rules in the section [chaos] of every node.toml. Without them these kinds
    are left out, and the report names them.

    Faults: kill-one, kill-majority, kill-all, kill-leader, kill-master (SIGKILL; started again later), kill-long (until
    the masters begin to replace the replicas), stop-one, stop-leader (SIGSTOP, later SIGCONT), isolate-one,
    isolate-leader, cut-one-way (no messages between nodes), bad-network (messages lost, repeated, reordered, delayed),
    slow-links, slow-disk, skew-clocks (within what nodes allow), transfer (leadership of tablets), change-members (a
    replica is replaced, or loses its vote for a moment), lose-disk (a tablet server loses all that it has stored, and
    the masters replace it; with --up only).

    Exit code 0: nothing is wrong. 1: there are findings, or a file of the run cannot be written. 130: interrupted with
    Ctrl-C; the cluster was healed, and what happened until then was judged and is clean.

    Example: stelae chaos --up --minutes 0.5

    Example: stelae chaos --up --servers 5 --faults kill-one,kill-long,lose-disk --every 30 --minutes 20"""
    from stelae_chaos.run_command import CommandOptions, run_command

    options = CommandOptions(
        directory=directory,
        up=up,
        seconds=minutes * 60,
        seed=seed,
        faults=faults,
        every_s=every,
        servers=servers,
        clients=clients,
        keep=keep,
        engines={kind: name for kind, name in (("wal", wal), ("store", store)) if name},
        plot=plot,
        as_json=as_json,
    )
    raise typer.Exit(run_command(options))
