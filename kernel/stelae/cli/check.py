"""``stelae check``: check the health of a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli.kit.connection import ConnectOption, TimeoutOption
from stelae.cli.kit.output import JsonOption
from stelae.cli.table import MasterDirOption


def register(app: typer.Typer) -> None:
    """Add the command to the root application."""
    app.command("check")(check)


def check(
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    table: Annotated[
        list[str],
        typer.Option("--table", help="Check only this table. Repeat it for more tables. Nodes are always checked."),
    ] = [],  # noqa: B006 - typer needs a list
    checksums: Annotated[
        bool, typer.Option("--checksums", help="Also compare the rows of all replicas. Reads every row.")
    ] = False,
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Check the health of every master, tablet server and replica.

    If the replicas of a tablet disagree, its consensus matrix is printed: the term, leader and members that each
    replica believes. The command also compares the releases of the nodes, the settings that should be equal, the
    clocks, and the connections between nodes. CLOCK is how far the clock of a node is ahead of the clock of this
    machine, and how far that may be off, because the answer took time. A warning reports something that does no harm
    yet.

    Exit code 0: no problems, although there may be warnings. 1: there are problems.

    Example: stelae check --connect 127.0.0.1:7051"""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_check import run_check

    raise typer.Exit(
        run_check(MastersTarget(directory, connect, timeout_s), table, checksums=checksums, as_json=as_json)
    )
