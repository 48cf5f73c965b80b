"""``stelae tablet``: list and describe tablets, change their replicas, and manage the quarantine of deleted ones."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli.kit.connection import ConnectOption, TimeoutOption
from stelae.cli.kit.output import JsonOption, command_group
from stelae.cli.quarantine import commands as quarantine
from stelae.cli.table import MasterDirOption
from stelae.cli.tablet_members import register as register_member_commands

commands = command_group("List and describe tablets, change their replicas, and manage deleted replicas.")

commands.add_typer(quarantine, name="quarantine")


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    app.add_typer(commands, name="tablet")


@commands.command("list")
def list_tablets(
    table: Annotated[str, typer.Option("--table", help="List only the tablets of this table.")] = "",
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """List the tablets: table, health, leader, running replicas and size of each.

    Commands accept the first letters of an id, at least four, if no other id begins with them."""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_tablets import run_list

    raise typer.Exit(run_list(MastersTarget(directory, connect, timeout_s), table, as_json=as_json))


@commands.command("describe")
def describe(
    tablet: Annotated[str, typer.Argument(help="Id of the tablet, or its first letters, at least four.")],
    rows: Annotated[
        bool, typer.Option("--rows", help="Also count the rows. Reads the first key column of every row.")
    ] = False,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Show one tablet: its rows, its health, and the role, log, size, location and server of each replica."""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_tablets import run_describe

    raise typer.Exit(
        run_describe(MastersTarget(directory, connect, timeout_s), tablet, count_rows=rows, as_json=as_json)
    )


register_member_commands(commands)
