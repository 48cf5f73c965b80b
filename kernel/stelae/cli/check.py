"""``stelae check``: is the cluster healthy?"""

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
        typer.Option("--table", help="Look at this table alone; repeat it for more. Nodes are looked at anyway."),
    ] = [],  # noqa: B006 - typer needs a list
    checksums: Annotated[
        bool, typer.Option("--checksums", help="Compare the rows of all replicas, too: reads every row.")
    ] = False,
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Ask every master, tablet server and replica how it is; exit code 0 only if all is well.

    A tablet whose replicas do not agree is shown with its consensus matrix: what each replica believes. Nodes are
    compared, too: their releases, the settings that ought to be alike, their clocks, and whether they reach each other.
    What is worth knowing and breaks nothing is a warning, and leaves the exit code alone.

    Example: stelae check --connect 127.0.0.1:7051"""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_check import run_check

    raise typer.Exit(
        run_check(MastersTarget(directory, connect, timeout_s), table, checksums=checksums, as_json=as_json)
    )
