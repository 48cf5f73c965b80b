"""``stelae tablet``: list, describe and convert tablets, change their replicas, and manage deleted ones."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli.fs import ConfigOption, DirectoryArgument
from stelae.cli.kit.connection import ConnectOption, TimeoutOption
from stelae.cli.kit.output import JsonOption, command_group
from stelae.cli.quarantine import commands as quarantine
from stelae.cli.table import MasterDirOption
from stelae.cli.tablet_members import register as register_member_commands

commands = command_group(
    "List and describe tablets, change their replicas, manage deleted replicas, and change the consensus engine."
)

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


@commands.command("convert-consensus")
def convert_consensus(
    directory: DirectoryArgument = None,
    config: ConfigOption = None,
    to: Annotated[
        str | None, typer.Option(help="New consensus engine. Default: the engine in the node.toml of --config.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check all tablets, and change nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Change the consensus engine of the tablets of a stopped node, as from `local` to `raft`.

    Stop the node, run this command, and start the node. The command replaces one name in the superblock of each tablet.
    Rows, log, term and vote do not change: the new engine continues the log of the old one. With --config the command
    also sets `[engines] consensus` in that node.toml.

    Every tablet must have this node as its only member. If one has others, nothing is changed. After a crash each
    tablet has the old engine or the new one; run the command again to complete the change.

    Example: stelae tablet convert-consensus --config node.toml --to raft"""
    from stelae.cli.run_convert_consensus import run_convert_consensus

    raise typer.Exit(run_convert_consensus(directory, config, to, dry_run=dry_run, as_json=as_json))


register_member_commands(commands)
