"""The command ``stelae chaos``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stelae.cli.kit.output import JsonOption

MINUTES_MAX = 24 * 60.0


def register(app: Any) -> None:
    """Add the command to the root application."""
    app.command("chaos")(chaos)


def chaos(
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="Break the cluster that `stelae cluster up DIR` has started in this folder."),
    ] = None,
    up: Annotated[bool, typer.Option("--up", help="Start a new cluster, and remove it after a clean run.")] = False,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0, max=MINUTES_MAX, help="How long faults are injected, such as 0.5.")
    ] = 1.0,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, help="Seed of the faults and of the clients. Default: drawn, and printed."),
    ] = None,
    faults: Annotated[
        str, typer.Option("--faults", help="Kinds of faults, separated by commas. Default: all that are possible.")
    ] = "",
    clients: Annotated[int, typer.Option("--clients", min=1, max=16, help="Number of client processes.")] = 3,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            help="With --up: create the cluster in this new folder and keep it. `stelae cluster up` starts it again.",
        ),
    ] = None,
    wal: Annotated[
        str, typer.Option(help="With --up: log engine of the tablet servers, or one for each: a,b,c.")
    ] = "segmented",
    store: Annotated[
        str, typer.Option(help="With --up: tablet store of the tablet servers, or one for each: a,b,c.")
    ] = "columnar",
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Draw the timeline into this .svg file. Default: chaos-SEED.svg in this folder."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Break a cluster while clients use it, then heal it and check that the clients saw nothing impossible.

    Client processes write and read registers, appends, counters and groups of accounts with a constant sum. Meanwhile
    one fault follows another, each drawn from the seed: nodes are killed or stopped, cut off, slowed down, their clocks
    set wrong, and leadership is transferred. Then everything is healed. The cluster must become healthy, its replicas
    must be equal, no acknowledged write may be lost or doubled, every register must be linearizable, and every snapshot
    must show whole batches. A picture of the timeline shows what was broken, who led, and how late answers were.

    With --up, three masters and three tablet servers run on this machine. If something is wrong, their folder is kept.
    With --dir, nodes are killed and started again, and the tables of the run are dropped at the end. Faults of
    networks, disks and clocks need files of rules in the section [chaos] of every node.toml; without them these kinds
    are left out.

    Faults: kill-one, kill-majority, kill-all, kill-leader, kill-master, stop-one, stop-leader, isolate-one,
    isolate-leader, cut-one-way, bad-network, slow-links, slow-disk, skew-clocks, transfer.

    Exit code 0: nothing is wrong. 1: there are findings. 130: interrupted with Ctrl-C; the cluster was healed, and
    what happened until then was judged and is clean.

    Example: stelae chaos --up --minutes 0.5"""
    from stelae_chaos.run_command import CommandOptions, run_command

    options = CommandOptions(
        directory=directory,
        up=up,
        seconds=minutes * 60,
        seed=seed,
        faults=faults,
        clients=clients,
        keep=keep,
        engines={"wal": wal, "store": store},
        plot=plot,
        as_json=as_json,
    )
    raise typer.Exit(run_command(options))
