"""``stelae tablet``: the tablets of a cluster, and what nodes have set aside of those that they deleted."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli.kit.connection import ConnectOption, TimeoutOption
from stelae.cli.kit.output import JsonOption, command_group
from stelae.cli.quarantine import commands as quarantine
from stelae.cli.table import MasterDirOption

commands = command_group("Tablets: list them, describe one with its replicas; and the quarantine of deleted ones.")


commands.add_typer(quarantine, name="quarantine")


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    app.add_typer(commands, name="tablet")


@commands.command("list")
def list_tablets(
    table: Annotated[str, typer.Option("--table", help="Those of this table alone.")] = "",
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """List the tablets: how each is, who leads it, how many of its replicas run, and its size.

    An id may be shortened to its beginning wherever a command takes one, as long as no other begins so."""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_tablets import run_list

    raise typer.Exit(run_list(MastersTarget(directory, connect, timeout_s), table, as_json=as_json))


@commands.command("describe")
def describe(
    tablet: Annotated[str, typer.Argument(help="Id of the tablet, or at least four letters of its beginning.")],
    rows: Annotated[bool, typer.Option("--rows", help="Count the rows, too: reads the key of each.")] = False,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Show one tablet: which rows it holds, how it is, and each replica's role, log, size, location and server."""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_tablets import run_describe

    raise typer.Exit(
        run_describe(MastersTarget(directory, connect, timeout_s), tablet, count_rows=rows, as_json=as_json)
    )
